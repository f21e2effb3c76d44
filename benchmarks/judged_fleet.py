"""Every rule judged by recordings and labels that were made without a look at the rules.

A fleet of situations is simulated at 100 ms, sampled as by the agent, and written to a lake. Its labels are the truth,
with the following week known. `fallow evaluate --every 7d` then counts how often each rule was right.
`python -m benchmarks judged` stores the table in benchmarks/judged.json and writes it into docs/evaluate.md.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analytics.proportions import wilson
from analytics.rules import RULES
from benchmarks.judged_labels import Label, labels_of
from benchmarks.judged_misses import Misses, misses
from benchmarks.judged_rows import hosts_of, time_ms, write_lake
from benchmarks.judged_situations import SITUATIONS, Builder, Recording, fleet_of
from benchmarks.measure import Figure, between_marks
from fallow.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SEEDS = (11, 12, 13, 14, 15)
STORED = Path(__file__).parent / "judged.json"
PAGE = Path(__file__).parent.parent / "docs" / "evaluate.md"
RULE_NAMES = {rule.name for rule in RULES}
GRADES = ("high", "medium", "low")
MISSES = ("wrong", "missed", "kept at high", "kept at medium")


def write_labels(labels: Sequence[Label], file: Path) -> None:
    """The file of docs/evaluate.md."""
    with file.open("w", newline="", encoding="utf-8") as out:
        lines = csv.writer(out)
        lines.writerow([field.name for field in dataclasses.fields(Label)])
        for each in labels:
            lines.writerow([each.gpu, time_ms(each.since), time_ms(each.until), *dataclasses.astuple(each)[3:]])


@dataclasses.dataclass(frozen=True)
class Judged:
    """The result of `fallow evaluate --json` for one fleet, by labels of claims and by labels of reclaimable GPUs."""

    claims: Mapping[str, Any]
    takeable: Mapping[str, Any]
    misses: Misses


def judge(seed: int, folder: Path, situations: Sequence[tuple[Builder, int]] = SITUATIONS) -> Judged:
    fleet = fleet_of(seed, situations)
    names, hosts = [f"GPU-{seed}-{number:03}" for number in range(len(fleet))], hosts_of(fleet)
    write_lake(fleet, names, hosts, folder / "lake")
    kinds = [each.kind for each in fleet]
    labels = list(labels_of(fleet, names, hosts))
    (folder / "owners.csv").write_text(_owners(fleet), encoding="utf-8")
    (folder / "fallow.toml").write_text(f'[money]\nowners = "{folder / "owners.csv"}"\n', encoding="utf-8")
    write_labels(labels, folder / "all.csv")
    return Judged(
        claims=_evaluated(folder, "claims", [each for each in labels if not each.takeable]),
        takeable=_evaluated(folder, "takeable", [each for each in labels if each.takeable]),
        misses=misses(
            folder / "lake", folder / "fallow.toml", folder / "all.csv", dict(zip(names, kinds, strict=True))
        ),
    )


def _evaluated(folder: Path, name: str, labels: Sequence[Label]) -> dict[str, Any]:
    write_labels(labels, folder / f"{name}.csv")
    flags = (
        "--config",
        folder / "fallow.toml",
        "--lake",
        folder / "lake",
        "--labels",
        folder / f"{name}.csv",
        "--every",
        "7d",
        "--json",
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main(["evaluate", *map(str, flags)])
    if code:
        raise SystemExit(code)
    return {name: table["rows"] for name, table in json.loads(printed.getvalue())["tables"].items()}


def _owners(fleet: Sequence[Recording]) -> str:
    """The quotas of teams: one uses a sixth of what it has, others all of it, always or at times."""
    size = Counter(each.user for each in fleet)
    quotas = {
        f"namespace,ns-{each.user},{each.user}": 24 if "hoards" in each.facts else size[each.user]
        for each in fleet
        if each.facts & {"hoards", "uses its quota"}
    } | {f"account,acc-{each.user},{each.user}": size[each.user] for each in fleet if each.gang}
    return "\n".join(["kind,name,team,quota_gpus", *(f"{who},{quota}" for who, quota in quotas.items())]) + "\n"


@dataclasses.dataclass
class Share:
    """Counted cases, and those of them that were right."""

    right: int = 0
    judged: int = 0

    def add(self, row: Mapping[str, Any], proportion: str) -> None:
        self.right += row[f"{proportion}_right"]
        self.judged += row[f"{proportion}_judged"]

    @property
    def ratio(self) -> float | None:
        return self.right / self.judged if self.judged else None

    def as_json(self) -> dict[str, object]:
        bounds = None if self.ratio is None else [round(bound, 3) for bound in wilson(self.ratio, self.judged)]
        return {
            "right": self.right,
            "judged": self.judged,
            "ratio": self.ratio and round(self.ratio, 3),
            "interval_90": bounds,
        }


def summed(fleets: Sequence[Judged]) -> dict[str, Any]:
    """Return several fleets as one: precision and recall by rule, and the share of reclaimable GPUs by confidence."""
    rules: dict[str, dict[str, Share]] = defaultdict(lambda: defaultdict(Share))
    missed = sum((fleet.misses for fleet in fleets), Misses())
    findings, takeable, states = Counter[str](), {grade: Share() for grade in GRADES}, Counter[str]()
    for fleet in fleets:
        for each in fleet.claims["rules"]:
            findings[each["rule"]] += each["findings"]
            own = rules[each["rule"]]
            own["precision"].add(each, "precision")
            own["recall"].add(each, "recall")
        for each in fleet.takeable["rules_by_confidence"]:
            rules[each["rule"]][f"takeable_{each['confidence']}"].add(each, "precision")
        for each in fleet.takeable["takeable"]:
            takeable[each["confidence"]].add(each, "takeable")
        (whole,) = fleet.claims["evaluation"]
        states.update({name: whole[name] for name in ("judged_gpu_hours", "agreed_gpu_hours")})
    return {
        "fleets": len(fleets),
        "rules": {
            rule: {
                "findings": findings[rule],
                **{name: share.as_json() for name, share in own.items()},
                **{name: _situations(missed, rule, name) for name in MISSES},
            }
            for rule, own in rules.items()
            if own["precision"].judged or own["recall"].judged
        },
        "takeable": {grade: share.as_json() for grade, share in takeable.items()},
        "states_agreed_ratio": round(states["agreed_gpu_hours"] / states["judged_gpu_hours"], 4),
    }


def _situations(found: Misses, rule: str, name: str) -> dict[str, int]:
    """The situations in which the rule was wrong or missed something, the most frequent first."""
    return {
        situation: number
        for (own, how, situation), number in found.most_common()
        if (own, how) == (rule, name) and number
    }


def measure() -> Iterator[Figure]:
    """Store the table; yield precision and recall by rule, and the share of reclaimable GPUs by confidence."""
    os.environ["FALLOW_LEDGER_WORKERS"] = "1"
    fleets = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            fleets.append(judge(seed, Path(folder)))
        print(f"fleet {seed} is judged", file=sys.stderr, flush=True)
    found = summed(fleets)
    STORED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for rule, own in found["rules"].items():
        for name in ("precision", "recall"):
            yield from _figure(f"judged_{rule}_{name}", own[name])
    for grade, share in found["takeable"].items():
        yield from _figure(f"judged_takeable_{grade}", share)


def _figure(name: str, share: Mapping[str, Any]) -> Iterator[Figure]:
    if share["judged"]:
        low, high = share["interval_90"]
        yield Figure(
            name,
            share["ratio"],
            "ratio",
            f"{share['right']} of {share['judged']}, 90 % interval {low:.3f} to {high:.3f}",
        )


def page(text: str) -> str:
    """The page with the stored figures between its marks."""
    found = json.loads(STORED.read_text(encoding="utf-8"))
    lines = ["| rule | findings right | labelled GPUs found |", "|---|---|---|"]
    judged = {rule: own for rule, own in found["rules"].items() if rule in RULE_NAMES}
    flawless = {rule: own for rule, own in judged.items() if _is_whole(own["precision"]) and _is_whole(own["recall"])}
    for rule, own in judged.items():
        if rule not in flawless:
            lines.append(f"| {rule} | {_counts(own['precision'])} | {_counts(own['recall'])} |")
    both = (_sum_of(own[name] for own in flawless.values()) for name in ("precision", "recall"))
    lines.append(f"| {', '.join(flawless)} | {' | '.join(map(_counts, both))} |")
    lines += ["", "| GPUs to reclaim, by confidence | stayed unused | 90 % interval |", "|---|---|---|"]
    lines += [f"| {grade} | {_counts(share)} | {_interval(share)} |" for grade, share in found["takeable"].items()]
    return between_marks(text, "judged", "\n".join(lines) + "\n")


def _is_whole(share: Mapping[str, Any]) -> bool:
    return bool(share["right"] == share["judged"])


def _sum_of(shares: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    every = list(shares)
    return {name: sum(each[name] for each in every) for name in ("right", "judged")}


def _counts(share: Mapping[str, Any]) -> str:
    return f"{share['right']} of {share['judged']}"


def _interval(share: Mapping[str, Any]) -> str:
    return "{:.2f} to {:.2f}".format(*share["interval_90"]) if share["judged"] else "-"
