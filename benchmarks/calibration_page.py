"""docs/calibration.md as a whole, from the stored figures of `calibration`, `strangers` and `next_week`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Stored = Mapping[str, Any]

PAGE = Path(__file__).parent.parent / "docs" / "calibration.md"
GRADES = ("high", "medium", "low")
SETS = ("unseen",)
"""Fleets on which the rules were not tuned; the stored figures have the others too."""
_PAGE = """# Calibration: can you trust a grade?

<!-- written by `make calibrate` from the stored figures in benchmarks/ -->

A finding about GPUs to reclaim states the probability that they stay unused for seven days, and a grade of confidence.
This page compares promised with kept: only what was known at the end of a week counts, and the week after shows what
became of the GPUs. [`fallow evaluate`](evaluate.md) measures the same on your own fleet.

- **simulated**: fleets of seven kinds by fallow's own simulation (`make calibrate`); the constants were chosen on other
  fleets.
- **unseen**: mixed fleets of 112 GPUs, whose users the rules' author did not write (`python -m benchmarks strangers`).
  We never tune on them: trust these figures most.

## Precision and recall, by grade

*Precision*: the share of the named GPUs that stayed unused, with Wilson's 90 % interval. *Recall*: of all GPUs that
stayed unused for seven days, the share named with this grade or better.

{grades}

## Promised against kept

GPUs by the promised probability of seven unused days. *Kept* should match *promised*.

{promises}

## Next week's peak demand

fallow states an interval for the peak demand of each pool, meant to hold in 90 % of weeks (`python -m benchmarks
next-week PATH...`). Width and misses are shares of the pool. *Traces* are published series, in view when the constants
were chosen.

{weeks}

## What this does not show

- Simulated people are not people, and GPUs of one finding are not independent: the true intervals are wider.
- Rules about efficiency and right-sizing reclaim nothing and are not in these tables; `python -m benchmarks judged`
  judges them ([evaluate.md](evaluate.md)).
- Models of survival libraries (lifelines, statsmodels, scikit-survival) are nearer on one population and farther on
  another (`python -m benchmarks persistence`), so fallow uses none.
"""


def page() -> str:
    """Return the page, with every figure as it is stored."""
    simulated, strangers = _stored("calibration"), _stored("strangers")
    by_set = [f"{name}: {cell}" for name in ("simulated", *SETS) for cell in ("GPUs", "promised", "kept")]
    by_grade = ("fleets", "grade", "GPUs", "precision, 7 d", "90 % interval", "precision, 1 d", "recall, 7 d")
    by_week = ("fleets", "weeks of a pool", "interval held", "90 % interval", "mean width", "point misses by")
    return _PAGE.format(
        grades=_table(by_grade, _grades(simulated, strangers)),
        promises=_table(("promised", *by_set), _promises(simulated, strangers)),
        weeks=_table(by_week, _weeks(_stored("next_week"))),
    )


def write_page() -> None:
    """Write the page again."""
    PAGE.write_text(page(), encoding="utf-8")


def _stored(name: str) -> Stored:
    found: Stored = json.loads((Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    head, *lines = (f"| {' | '.join(cells)} |" for cells in (heads, *rows))
    return "\n".join([head, "|---" * len(heads) + "|", *lines])


def _grades(simulated: Stored, strangers: Stored) -> Iterator[list[str]]:
    for grade in GRADES:
        week = simulated["grade"][grade]
        shares = [_percent(week["kept_ratio"]), _interval(week["interval_90"])]
        yield ["simulated", grade, str(week["gpus"]), *shares, "-", "-"]
    for name in SETS:
        for grade in GRADES:
            figures = strangers[name]["grades"][grade]
            week = figures["kept 7 d"]
            shares = [_percent(week["ratio"]), _interval(week["interval_90"]), _percent(figures["kept 1 d"]["ratio"])]
            yield [name, grade, str(week["of"]), *shares, _percent(figures["recall"]["ratio"])]
        week, day = strangers[name]["grades"]["any idle"].values()
        shares = [_percent(week["ratio"]), _interval(week["interval_90"]), _percent(day["ratio"])]
        yield [name, "all idle GPUs", str(week["of"]), *shares, "-"]


def _promises(simulated: Stored, strangers: Stored) -> Iterator[list[str]]:
    for bounds, row in simulated["probability"].items():
        cells = [str(row["gpus"]), _percent(row["promised_ratio"]), _percent(row["kept_ratio"])]
        for name in SETS:
            own = strangers[name]["promises"][bounds]
            cells += [str(own["of"]), _percent(own["promised"]), _percent(own["ratio"])]
        yield [bounds.replace(" to ", "-"), *cells]


def _weeks(stored: Stored) -> Iterator[list[str]]:
    for name, groups in sorted(stored.items()):
        row = groups["kind"]["all"]["now"]
        interval = _interval((row["held_low_ratio"], row["held_high_ratio"]))
        shares = _percent(row["held_ratio"]), interval, _percent(row["width_ratio"]), _percent(row["miss_ratio"])
        yield [name, f"{row['weeks']:.0f}", *shares]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _interval(bounds: Iterable[float] | None) -> str:
    return "-" if bounds is None else "-".join(f"{100 * bound:.1f}" for bound in bounds) + "%"
