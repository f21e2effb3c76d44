"""The demand duration curve: how many GPUs were wanted at once, and for how many hours; and what fewer GPUs would have meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from analytics.capacity.demand import WhatIf, demand, duration, what_if
from analytics.language.quantities import Number
from analytics.language.sentences import tr, tr_many
from analytics.sections.basis import PageBasis
from analytics.sections.names import least_to_most
from analytics.sections.point_samples import sampled_note
from analytics.sections.section import Cell, Curve, DurationCurves, Section, SectionColumn

_POINTS, _LISTED = 300, 120
_STATES = {"allocated": "held", "working": "active"}
_NAMES = {"allocated": tr("held, reserved or used"), "working": tr("really working")}
_NO_HOUR = tr("The window has no whole hour that was seen.")


def gpus_by_hour(basis: PageBasis) -> pl.DataFrame:
    """GPUs of the scope in each whole hour of the window: the columns of `analytics.capacity.demand.demand`."""
    summary = basis.report.summary
    return demand(basis.part.inside.stretches, summary.since_ms, summary.until_ms)


def demand_curve(basis: PageBasis) -> Section:
    """Allocated and working GPUs, the busiest hour first."""
    hours = gpus_by_hour(basis)
    there = max(hours["there"].to_list(), default=0.0)
    levels = {name: max(hours[name].to_list(), default=0.0) for name in _NAMES}
    return Section(
        name="demand",
        title=tr("Demand duration curve"),
        question=tr("How many GPUs are needed at once, and for how long? The most in each whole hour, the busiest hour first."),
        headline=tr(
            "At most {allocated} of {there} GPUs were held, reserved or used at once, and at most {working} were really working.",
            allocated=Number(levels["allocated"]), there=Number(there), working=Number(levels["working"]),
        ) if hours.height else _NO_HOUR,
        columns=(
            SectionColumn("gpus", tr("GPUs at once"), "number"),
            SectionColumn("allocated_hours", tr("hours with at least so many held, reserved or used"), "count"),
            SectionColumn("working_hours", tr("hours with at least so many working"), "count"),
        ),
        rows=tuple(_levels(hours)),
        chart=DurationCurves(
            unit=tr("GPUs at once"), across=tr("share of the hours with at least so many"),
            whole=there, whole_label=tr("{number} GPUs there", number=Number(there)),
            curves=tuple(_curve(hours, name) for name in _NAMES),
        ) if hours.height else None,
        notes=tuple(_notes(basis, hours)) if hours.height else (),
    )  # fmt: skip


def _notes(basis: PageBasis, hours: pl.DataFrame) -> Iterator[str]:
    unseen = hours.filter(hours["unknown"] > 0).height
    yield tr_many("{number} whole hour of the window.", "{number} whole hours of the window.", hours.height)
    if unseen:
        yield tr_many(
            "In {number} of them some GPU was not seen: the band reaches up to where it would count as wanted.",
            "In {number} of them some GPUs were not seen: the band reaches up to where they would count as wanted.", unseen,
        )  # fmt: skip
    else:
        yield tr("Every GPU was seen in all of them.")
    pool = basis.whole.inventory.pool
    if basis.report.scope.pool is None and len({pool(gpu) for gpu in basis.part.inside.stretches["gpu"].unique()}) > 1:
        yield tr("All pools are added up: choose a pool for one of them.")
    yield from sampled_note([basis.report.summary.totals])


def _curve(hours: pl.DataFrame, name: str) -> Curve:
    is_bounded = bool((hours[f"{name}_or_unknown"] > hours[name]).any())
    return Curve(
        name=_NAMES[name],
        state=_STATES[name],
        points=_steps(hours[name]),
        most=_steps(hours[f"{name}_or_unknown"]) if is_bounded else (),
        dashed=name == "working",
    )


def _steps(levels: pl.Series) -> tuple[tuple[float, float], ...]:
    """Shares of the hours in percent and the level up to there, for a line that goes down first and then right."""
    curve = duration(levels)
    total = curve["hours"][-1]
    thin = curve.gather_every(max(1, curve.height // _POINTS))
    if thin["hours"][-1] != total:
        thin = thin.vstack(curve.tail(1))
    gpus = thin["gpus"].to_list()
    shares = [0.0, *(round(100 * each / total, 2) for each in thin["hours"].to_list())]
    return tuple(zip(shares, [gpus[0], *gpus], strict=True))


def _levels(hours: pl.DataFrame) -> Iterator[tuple[Cell, ...]]:
    """The curves at the same levels, the highest first."""
    levels = sorted({each for name in _NAMES for each in hours[name].to_list()}, reverse=True)
    for level in levels[:: max(1, -(-len(levels) // _LISTED))]:
        digits = 0 if level == int(level) else 1
        yield Number(level, digits), *(Number(hours.filter(hours[name] >= level).height) for name in _NAMES)


def fewer_gpus(basis: PageBasis) -> Section:
    """In how many hours fewer GPUs would not have been enough."""
    hours = gpus_by_hour(basis)
    found = what_if(hours)
    return Section(
        name="fewer",
        title=tr("With fewer GPUs"),
        question=tr("If some GPUs are removed, in how many hours of the window would the remaining ones not have been enough?"),
        headline=_fewer_headline(found, hours.height),
        columns=(
            SectionColumn("gone", tr("GPUs removed"), "count"),
            SectionColumn("left", tr("GPUs remaining"), "count"),
            SectionColumn("allocated_hours", tr("hours short of what was held, reserved or used"), "count"),
            SectionColumn("working_hours", tr("hours short of what was working"), "count"),
        ),
        rows=tuple(_fewer_row(each) for each in found),
        notes=(
            tr("From the hours as they were, whole pools at once: it does not know on which host or model work could have run."),
            *sampled_note([basis.report.summary.totals]),
        ) if found else (),
    )  # fmt: skip


def _fewer_headline(found: Sequence[WhatIf], hours: int) -> str:
    if not found:
        return _NO_HOUR
    held = max((each.gone for each in found if not each.allocated_hours_most), default=0)
    working = max((each.gone for each in found if not each.working_hours_most), default=0)
    if not working:
        return tr("Every GPU was needed at once in some of {hours} hours, or may have been.", hours=Number(hours))
    if not held:
        return tr(
            "Every GPU was held, reserved or used at once in some of {hours} hours, or may have been; {working} were never needed by what was working.",
            hours=Number(hours), working=Number(working),
        )  # fmt: skip
    return tr(
        "With {held} GPUs fewer, no hour of {hours} would have been short of what was held, reserved or used; with {working} fewer, none of what was working.",
        hours=Number(hours), held=Number(held), working=Number(working),
    )  # fmt: skip


def _fewer_row(each: WhatIf) -> tuple[Cell, ...]:
    return (
        Number(each.gone),
        Number(each.left, 0 if each.left == int(each.left) else 1),
        least_to_most(Number(each.allocated_hours), Number(each.allocated_hours_most)),
        least_to_most(Number(each.working_hours), Number(each.working_hours_most)),
    )
