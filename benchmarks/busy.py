"""`python -m benchmarks busy`: does fallow tell work from no work, on busy programs that its rules do not know?

Programs and labels were written without a look at the rules (`busy_programs.py`). Each site runs every program once and
is judged with every set of witnesses. `fallow sql` gives the ledger 5, 10 and 30 minutes into the stalls and at the
end; `fallow findings` names job, GPU and kind at the end. SEEN may be read while the product is tuned, UNSEEN may not.
If the recorded trace genai26 is present, its pods are judged as work too. `python -m benchmarks.busy SEED...` judges
single sites and stores nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.busy_lake import ONSET_S, SECONDS, SETS, SLOT_S, SimulatedGpu, Site, made_site, write_until
from benchmarks.labelled_trace import import_trace, trace_folder
from benchmarks.measure import Figure
from fallow.cli import main
from fallow.clock import HOUR_MS, SECOND_MS
from tests.lakes import made_lake

SEEN, UNSEEN = (1, 2, 3, 4), (101, 102, 103, 104)
STORED = Path(__file__).parent / "busy.json"
DELAYS_MIN = (5, 10, 30)
RIGHT = {"context": ("stalled", "unknown"), "keep": ("stalled", "held", "reserved")}
"""Right states of the kinds for which `stalled` is not the only one. Values that cannot be true together are not
observed. Between two bursts of a keep-alive no kernel runs, so its GPU may be called idle."""
AS_WORK = ("low", "active")
RULES = {"hung_job": "hung", "orphaned_kernel": "orphan", "keep_alive": "keep", "straggler": "straggler"}
"""The rules that this judges, with the kind of their programs."""
_LEDGER = 'select gpu, epoch_ms(start) as since_ms, epoch_ms("end") as until_ms, state from ledger'


def asked(lake: str, *arguments: str) -> str:
    """Return what a command of fallow prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        code = main([*arguments, "--lake", lake, "--json"])
    if code:
        raise SystemExit(code)
    return printed.getvalue()


def ledger(lake: str) -> pl.DataFrame:
    """Return the segments of the ledger by `gpu`, `since_ms`, `until_ms` and `state`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ledger.parquet"
        if code := main(["sql", _LEDGER, "--lake", lake, "--format", "parquet", "--out", str(file)]):
            raise SystemExit(code)
        return pl.read_parquet(file)


def judged(seed: int) -> pl.DataFrame:
    """Return a row for each GPU of a site with each set of witnesses."""
    os.environ["FALLOW_LEDGER_WORKERS"] = "1"
    site = made_site(seed)
    parts = [
        pl.DataFrame(_rows(site, each), infer_schema_length=None).with_columns(witnesses=pl.lit(each)) for each in SETS
    ]
    print(f"site {seed} of {len(site.gpus)} GPUs is judged", file=sys.stderr, flush=True)
    return pl.concat(parts, how="vertical_relaxed").with_columns(seed=pl.lit(seed))


def _rows(site: Site, witnesses: str) -> list[dict[str, Any]]:
    known_min = dict[str, int]()
    with tempfile.TemporaryDirectory() as folder:
        lake, since_s = made_lake(folder), 0
        for delay_min in DELAYS_MIN:
            until_s = ONSET_S + delay_min * 60
            write_until(site, lake, witnesses, since_s, until_s)
            moment_ms, since_s = site.start_ms + until_s * SECOND_MS - 1, until_s
            now = ledger(folder).filter(pl.col("since_ms") <= moment_ms, pl.col("until_ms") > moment_ms)
            states = dict(now.select("gpu", "state").iter_rows())
            for gpu in site.gpus:
                if states.get(gpu.name) in _right(gpu):
                    known_min.setdefault(gpu.name, delay_min)
        write_until(site, lake, witnesses, since_s, SECONDS)
        segments = ledger(folder).partition_by("gpu", as_dict=True)
        findings = json.loads(asked(folder, "findings", "--all"))["findings"]
    return [
        gpu_figures(site, gpu, segments[(gpu.name,)])
        | _named(site, gpu, findings)
        | {"known_min": known_min.get(gpu.name)}
        for gpu in site.gpus
        if (gpu.name,) in segments
    ]


def _right(gpu: SimulatedGpu) -> tuple[str, ...]:
    return RIGHT.get(gpu.program.kind, ("stalled",))


def gpu_figures(site: Site, gpu: SimulatedGpu, segments: pl.DataFrame) -> dict[str, Any]:
    """Return the GPU's hours: judged, without work, shown as `stalled`, found, wrongly shown, and passing as work."""
    shown = np.full(len(gpu.truth), "", dtype=object)
    for since_ms, until_ms, state in segments.select("since_ms", "until_ms", "state").iter_rows():
        first, after = (round((each - site.start_ms) / SLOT_S / SECOND_MS) for each in (since_ms, until_ms))
        shown[max(first, 0) : after] = state
    is_stalled, right, truth = shown == "stalled", np.isin(shown, _right(gpu)), gpu.truth
    cases = {
        "hours": truth >= 0,
        "stalled": truth == 1,
        "shown": is_stalled & (truth >= 0),
        "found": right & (truth == 1),
        "false": is_stalled & (truth == 0),
        "passes": np.isin(shown, AS_WORK) & (truth == 1),
        "not_judged": is_stalled & (truth < 0),
    }
    return {"program": gpu.program.name, "kind": gpu.program.kind, "card": gpu.card.model, "gpu": gpu.name} | {
        name: float(case.sum()) * SLOT_S / 3600 for name, case in cases.items()
    }


def _named(site: Site, gpu: SimulatedGpu, findings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return whether a stall rule names the GPU, whether it is the right rule, and whether it names job and culprit."""
    kinds = [(RULES.get(each["rule"]), each) for each in findings if gpu.name in (each["gpus"] or ())]
    right = [each for kind, each in kinds if kind == gpu.program.kind]
    shown = " ".join(json.dumps([each["sentence"], each["evidence"], each["notes"]]) for each in right)
    culprit = next((each.name for each in site.gpus if each.program is gpu.program and each.is_culprit), None)
    return {
        "by_a_rule": any(kind is not None for kind, _ in kinds),
        "by_its_rule": bool(right),
        "with_job": any(gpu.job in (each["job"] or "") for each in right),
        "with_culprit": None if culprit is None else re.search(rf"{culprit}\b", shown) is not None,
    }


def trace_hours() -> dict[str, float]:
    """Return the GPU-hours of the recorded pods, which all work, by shown state; empty without the trace."""
    folder = trace_folder()
    if folder is None:
        return {}
    with tempfile.TemporaryDirectory() as name:
        import_trace(folder, Path(name) / "lake")
        hours = (pl.col("until_ms") - pl.col("since_ms")).sum() / HOUR_MS
        return dict(ledger(str(Path(name) / "lake")).group_by("state").agg(hours).sort("state").iter_rows())


_SUMS = ("hours", "stalled", "shown", "found", "false", "passes", "not_judged")


def summed(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return sums of GPU-hours, precision and recall per group; a ratio is null where nothing could be right or wrong.

    `recall` counts every right state, `recall_stalled` that state alone. `delay` is the median of minutes until a GPU
    without work has a right state, among those that ever have one. The figures from `wrong_rule` on count GPUs of
    findings.
    """
    one, stall = pl.col("stalled") > 0, pl.col("known_min")
    return (
        rows.group_by(by, maintain_order=True)
        .agg(
            *(pl.col(name).sum().round(2) for name in _SUMS),
            gpus=one.sum(),
            within_10_min=(one & (stall <= 10)).sum(),
            delay=stall.filter(one).median(),
            wrong_rule=(pl.col("by_a_rule") & ~pl.col("by_its_rule")).sum(),
            by_its_rule=(one & pl.col("by_its_rule")).sum(),
            with_job=(one & pl.col("with_job")).sum(),
            with_culprit=(one & pl.col("with_culprit")).sum(),
            of_culprits=(one & pl.col("with_culprit").is_not_null()).sum(),
        )
        .with_columns(
            precision=(1 - pl.col("false") / pl.col("shown")).fill_nan(None).round(4),
            recall_stalled=((pl.col("shown") - pl.col("false")) / pl.col("stalled")).fill_nan(None).round(4),
            recall=(pl.col("found") / pl.col("stalled")).fill_nan(None).round(4),
            recall_10_min=(pl.col("within_10_min") / pl.col("gpus")).fill_nan(None).round(4),
        )
    )


def judge(seeds: Sequence[int]) -> pl.DataFrame:
    """Return the rows of sites with every set of witnesses; FALLOW_BENCH_WORKERS (default 1) are judged at once."""
    with ProcessPoolExecutor(int(os.environ.get("FALLOW_BENCH_WORKERS", "1")), get_context("spawn")) as pool:
        return pl.concat(list(pool.map(judged, seeds)), how="vertical_relaxed")


def measure() -> Iterator[Figure]:
    """Store and print every figure, and yield precision and recall by set of witnesses."""
    stored: dict[str, Any] = {}
    for name, seeds in (("seen", SEEN), ("unseen", UNSEEN)):
        rows = judge(seeds)
        sets = summed(rows, ["witnesses"])
        groups = {
            "sets": sets,
            "cards": summed(rows, ["witnesses", "card"]),
            "programs": summed(rows.filter(pl.col("witnesses") == "agent"), ["program"]),
        }
        stored[name] = {group: found.to_dicts() for group, found in groups.items()}
        show(rows)
        for row in sets.iter_rows(named=True):
            for figure in ("precision", "recall", "recall_stalled", "recall_10_min"):
                how = (
                    f"{row['shown']:,.0f} GPU-hours shown, {row['false']:,.1f} of them work; {row['stalled']:,.0f} of"
                    f" {row['hours']:,.0f} without work"
                )
                if row[figure] is not None:
                    yield Figure(
                        f"busy_{name}_{row['witnesses'].replace(' ', '_')}_{figure}", row[figure], "ratio", how
                    )
    if trace := trace_hours():
        stored["trace"] = trace
        how = f"of {sum(trace.values()):,.0f} recorded GPU-hours, utilization alone"
        yield Figure("busy_trace_shown_stalled", trace.get("stalled", 0.0), "GPU-h", how, 0)
    STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


def show(rows: pl.DataFrame) -> None:
    """Print the figures of each set of witnesses, then of each program with a stall or with time shown as `stalled`."""
    programs = summed(rows, ["program", "witnesses"]).filter(pl.max_horizontal("stalled", "shown", "not_judged") > 0)
    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_width_chars=400, tbl_formatting="NOTHING", tbl_hide_column_data_types=True
    ):
        print(summed(rows, ["witnesses"]), programs, sep="\n", file=sys.stderr)


if __name__ == "__main__":
    show(judge(tuple(map(int, sys.argv[1:]))))
