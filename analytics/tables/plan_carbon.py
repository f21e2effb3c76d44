"""Energy and CO2 of used and held GPUs, by team; the cost of holding a card; savings of work at other hours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

from analytics.language.sentences import Number, Share, plain, tr, tr_many
from analytics.money.carbon import FREE, HELD, PARTS, REST, USED, CarbonSum
from analytics.money.energy import KNOWN_MIN, MJ_PER_KWH
from analytics.money.priced_segments import UNNAMED
from analytics.plan.carbon import Carbon, TeamCarbon
from analytics.plan.deferral import Deferral, HourOfDay
from analytics.tables.chart import Chart, ChartPlace, Line, Panel
from analytics.tables.money_basis import part_of_all
from analytics.tables.names import NAME_MOST, card_name
from analytics.tables.table import Column, Table, column, drawn, fact, for_programs, single

_TITLE = tr("Energy and CO2 of used and idle GPUs")
_QUESTION = tr("How much energy and CO2 do GPUs cause while they work, and while they are idle?")

_ALL = "all"
_ALL_TEAMS = "(all)"
"""The sum over all teams, in brackets like other labels that are no team's name."""
_PARTS = {
    USED: tr("used"),
    HELD: tr("idle while allocated"),
    FREE: tr("unallocated"),
    REST: tr("other"),
    _ALL: tr("all"),
}


def carbon_tables(found: Carbon) -> Iterator[Table | None]:
    """Yield the tables of a scope; None for those that a team or a user does not see."""
    yield carbon_parts(found)
    yield carbon_by_team(found)
    yield parking_power(found)
    yield better_hours(found)
    yield _team_parts(found)
    yield _basis(found)
    if found.deferral is not None:
        yield _deferral(found.deferral)


def cannot_rate(error: str) -> Table:
    """Return the table that reports an error in the file of the grid's intensity."""
    return Table(
        name="carbon",
        title=_TITLE,
        question=_QUESTION,
        headline=tr("No answer: the grid's intensity cannot be used. {error}", error=error),
    )


def carbon_parts(found: Carbon) -> Table:
    """Return a row per part of the GPU time, and their sum."""
    sums = {**found.parts, _ALL: found.total}
    return Table(
        name="carbon",
        title=_TITLE,
        question=_QUESTION,
        headline=carbon_sentence(found),
        columns=(column("part", tr("GPU time"), "words", _PARTS.get, str), *_sum_columns(sums.__getitem__)),
        rows=tuple(part for part, each in sums.items() if part == _ALL or each.energy.total_ms),
        notes=tuple(_notes(found)),
    )


def _sum_columns(of: Callable[[Any], CarbonSum]) -> tuple[Column, ...]:
    """Return columns over the energy and the CO2 that `of` returns for a row."""
    return (
        column("gpu_hours", tr("GPU-hours"), "gpu_hours", lambda row: of(row).energy.total_ms),
        column("kwh", tr("energy, kWh"), "number", lambda row: Number(of(row).kwh, 1)),
        column("known_share", tr("time with known energy"), "share", lambda row: Share(of(row).energy.known_share)),
        column("co2_kg", tr("CO2, kg"), "number", lambda row: Number(of(row).co2_kg, 1)),
        column(
            "rated_share",
            tr("energy with known intensity"),
            "share",
            lambda row: part_of_all(of(row).rated_share),
            lambda row: of(row).rated_share,
        ),
    )


def carbon_sentence(found: Carbon) -> str:
    """Return the totals, and the part of idle GPUs that processes hold, as a sentence."""
    total, parts = found.total, found.parts
    if not total.energy.known_ms:
        return tr("No energy is known, because neither energy counters nor power were read.")
    if total.kwh is None:
        return tr(
            "energy: not known, it was read for {known} of the time (from {least} on it is summed up)",
            known=Share(total.energy.known_share),
            least=Share(KNOWN_MIN, 0),
        )
    drawn = Number(total.kwh * found.grid.pue, 1)
    if total.co2_kg is None:
        return tr("The site drew {kwh} kWh for these GPUs. The grid's intensity is unknown in every hour.", kwh=drawn)
    return tr(
        (
            "The site drew {kwh} kWh for these GPUs, which caused {co2} kg of CO2. Idle GPUs caused {parked} kg: {held}"
            " held idle, stalled or allocated but unused, {free} unallocated."
            if parts[FREE].energy.total_ms
            else (
                "The site drew {kwh} kWh for these GPUs, which caused {co2} kg of CO2: {held} kg while they were held"
                " idle, stalled or allocated but unused."
            )
        ),
        kwh=drawn,
        co2=Number(total.co2_kg, 1),
        parked=Number((parts[HELD] + parts[FREE]).co2_kg, 1),
        held=Number(parts[HELD].co2_kg, 1),
        free=Number(parts[FREE].co2_kg, 1),
    )


def _notes(found: Carbon) -> Iterator[str]:
    source = plain(found.intensity.source, NAME_MOST)
    yield tr(
        "kWh: drawn by the GPUs, shown if known for 90 % of the time. CO2: of the energy that the site draws for the"
        " GPUs, with a PUE of {pue}, in hours of known intensity. Other: time that was not observed, broken GPUs, and"
        " GPUs split by MIG, whose counter covers all instances.",
        pue=Number.as_given(found.grid.pue),
    )
    if found.intensity.flat is not None:
        yield tr(
            "Intensity: {number} g of CO2 per kWh in every hour ({source}). For hourly values, name a file (--intensity"
            " or plan.carbon).",
            number=Number.as_given(found.intensity.flat),
            source=source,
        )
    elif found.mean_g_per_kwh is not None:
        yield tr(
            "Intensity: {source}, known for {known} of the window's {hours} hours, {mean} g of CO2 per kWh on average."
            " Missing hours stay unknown.",
            source=source,
            known=found.known_hours,
            hours=found.hours,
            mean=Number(found.mean_g_per_kwh, 0),
        )
    else:
        yield tr("Intensity: {source} has none of the window's {hours} hours.", source=source, hours=found.hours)
    if found.counter_share is not None:
        yield tr(
            "Energy: from the GPUs' own counters for {share} of the known time, otherwise from power times time.",
            share=part_of_all(found.counter_share),
        )


def carbon_by_team(found: Carbon) -> Table:
    """Return a row per team, one for time without a team, and their sum."""
    gpu_hours, _, known_share, _, rated_share = _sum_columns(attrgetter("total"))
    return Table(
        name="carbon_teams",
        title=tr("Energy and CO2 by team"),
        question=tr("Which teams caused the energy and the CO2?"),
        headline=_team_sentence(found),
        columns=(
            column("team", tr("team"), "team", lambda each: _team_name(each.label), "label"),
            replace(gpu_hours, audience="programs"),
            column("held_kwh", tr("unused by the team, kWh"), "number", lambda each: Number(each.parts[HELD].kwh, 1)),
            column("kwh", tr("total, kWh"), "number", lambda each: Number(each.total.kwh, 1)),
            known_share,
            column(
                "held_co2_kg",
                tr("unused by the team, kg CO2"),
                "number",
                lambda each: Number(each.parts[HELD].co2_kg, 1),
            ),
            column("co2_kg", tr("CO2, kg"), "number", lambda each: Number(each.total.co2_kg, 1)),
            rated_share,
        ),
        rows=(*found.teams, TeamCarbon(_ALL_TEAMS, found.parts)),
    )


def _team_name(label: str) -> str:
    if label == _ALL_TEAMS:
        return tr("all")
    return tr(label) if label in UNNAMED else plain(label, NAME_MOST)


def _team_parts(found: Carbon) -> Table:
    """Return for programs the parts of each team's GPU time."""
    columns = (
        fact("team", "team", lambda row: row[0].label),
        fact("part", "words", lambda row: row[1]),
        *_sum_columns(lambda row: row[0].parts[row[1]]),
    )
    rows = ((team, part) for team in found.teams for part in PARTS)
    return for_programs("carbon_team_parts", columns, rows)


def _team_sentence(found: Carbon) -> str:
    users = [each for each in found.teams if each.parts[HELD].co2_kg and each.label not in UNNAMED]
    if not users:
        return tr("No known team left allocated GPUs unused.")
    most = max(users, key=lambda each: each.parts[HELD].co2_g)
    return tr(
        "{team} caused the most CO2 with GPUs held idle, stalled or allocated but unused: {co2} kg.",
        team=_team_name(most.label),
        co2=Number(most.parts[HELD].co2_kg, 1),
    )


def parking_power(found: Carbon) -> Table | None:
    """Return a row per model with both powers observed; None for people."""
    if found.parking is None:
        return None
    return Table(
        name="parking_power",
        title=tr("Extra power of a card that is held idle"),
        question=tr("How much more power does a card draw when it is held idle than when it is unallocated?"),
        headline=_parking_sentence(found),
        columns=(
            column("model", tr("model"), "name", lambda each: card_name(each.model), "model"),
            fact("free_gpu_hours", "gpu_hours", "free_ms"),
            fact("held_gpu_hours", "gpu_hours", "held_ms"),
            column("free_w", tr("unallocated, W"), "number", lambda each: Number(each.free_w, 1)),
            column("held_w", tr("held idle, W"), "number", lambda each: Number(each.held_w, 1)),
            column("extra_kwh", tr("extra, kWh"), "number", lambda each: Number(each.extra.kwh, 1)),
            column("extra_co2_kg", tr("extra, kg CO2"), "number", lambda each: Number(each.extra.co2_kg, 1)),
            column("year_kwh", tr("a year, kWh"), "number", lambda each: Number(found.year_kwh(each.extra_w))),
            column("year_co2_kg", tr("a year, kg CO2"), "number", lambda each: Number(found.year_co2_kg(each.extra_w))),
            column(
                "year_cost",
                tr("a year, {currency}", currency=found.currency),
                "number",
                lambda each: Number(found.year_cost(each.extra_w)),
                audience="programs" if found.grid.price_per_kwh is None else "all",
            ),
        ),
        rows=found.parking,
        notes=(
            (
                tr(
                    "W: the mean over all cards of the model, by the ledger's energy. Extra: the energy of held cards"
                    " beyond the power of unallocated cards, in this window. A year: a single card that is held idle"
                    " all year instead of unallocated, with PUE, at the window's mean intensity."
                ),
            )
            if found.parking
            else ()
        ),
    )


def _parking_sentence(found: Carbon) -> str:
    if not found.parking:
        return tr("No model was both unallocated and held idle for an hour of known energy.")
    first = found.parking[0]
    watt, co2 = Number(found.year_kwh(1.0), 1), found.year_co2_kg(1.0)
    one = (
        tr("A watt drawn all year is {kwh} kWh.", kwh=watt)
        if co2 is None
        else tr("A watt drawn all year is {kwh} kWh, or {co2} kg of CO2.", kwh=watt, co2=Number(co2, 1))
    )
    return tr(
        "{model} draws {held} W while held idle and {free} W while unallocated. {watt}",
        model=card_name(first.model),
        held=Number(first.held_w, 0),
        free=Number(first.free_w, 0),
        watt=one,
    )


_INTENSITY = column("g_per_kwh", tr("grid, g CO2 per kWh"), "number", lambda each: Number(each.g_per_kwh))
_KWH = column("kwh", tr("can wait, kWh"), "number", lambda each: Number(each.mj / MJ_PER_KWH, 1))
_BEST_KWH = column("best_kwh", tr("at best, kWh"), "number", lambda each: Number(each.best_mj / MJ_PER_KWH, 1))


def better_hours(found: Carbon) -> Table | None:
    """Return a row per hour of the day, if the intensity differs by hour; None for people."""
    if found.parking is None:
        return None
    deferral = found.deferral
    return Table(
        name="better_hours",
        title=tr("CO2 that other hours would save"),
        question=tr("How much CO2 would be saved if work that can wait ran in hours of a cleaner grid?"),
        headline=_deferral_sentence(found),
        columns=(
            column(
                "hour", tr("hour of the day"), "words", lambda each: f"{each.hour:02d}:00", "hour", json_type="integer"
            ),
            _INTENSITY,
            column("free_gpus", tr("free GPUs"), "number", lambda each: Number(each.free_gpus, 1)),
            _KWH,
            _BEST_KWH,
        ),
        rows=() if deferral is None else deferral.hours,
        chart=None if deferral is None else _hours_chart(deferral.hours),
        notes=() if deferral is None else tuple(_deferral_notes(deferral)),
    )


def _hours_chart(hours: tuple[HourOfDay, ...]) -> Chart:
    """Return panels for the grid's intensity, and for the energy of work that can wait: as it was, and at best."""
    places = tuple(ChartPlace(f"{each.hour:02d}:00") for each in hours)
    intensity = Line(tr("the grid"), "held", **drawn(_INTENSITY, hours))
    before = Line(tr("as it was"), "low", **drawn(_KWH, hours))
    best = Line(tr("at best"), "active", **drawn(_BEST_KWH, hours))
    return Chart((Panel(_INTENSITY.title, (intensity,), places), Panel(_KWH.title, (before, best), places)))


def _deferral_sentence(found: Carbon) -> str:
    deferral = found.deferral
    if deferral is None:
        return tr(
            "This table needs the grid's intensity by the hour. Name a file with --intensity or plan.carbon"
            " (docs/planning.md)."
        )
    if not deferral.work.energy.known_ms:
        return tr("No work with known energy can wait.")
    if not found.known_hours:
        return tr("No hour of the window has a known intensity.")
    total = found.total.co2_g
    return tr(
        "Other hours would save at most {most} kg of CO2 ({share} of the total). For this, work that can wait runs up"
        " to {hours} later on unallocated GPUs of its pool.",
        most=Number(deferral.most_saved_g / 1000, 1),
        share=Share(deferral.most_saved_g / total if total else None),
        hours=tr_many("{number} {hour|hours}", deferral.most_hours),
    )


def _deferral_notes(deferral: Deferral) -> Iterator[str]:
    work = deferral.work
    yield tr(
        "Work that can wait: best-effort work of the owners table, and Slurm jobs without a waiting user. The name of"
        " the job, its partition or its QOS suggests a waiting user (interactive, notebook, jupyter, debug, serving,"
        " inference, prod). Work that can wait took {kwh} kWh, known for {known} of its time. {moved} kWh would move.",
        kwh=Number(work.kwh, 1),
        known=Share(work.energy.known_share),
        moved=Number(deferral.moved_mj / MJ_PER_KWH, 1),
    )
    yield tr(
        "The plan behind these hours moves all work of an hour and pool in the same way, and saves {saved} kg. A plan"
        " that selects the work saves at most the figure above.",
        saved=Number(deferral.saved_g / 1000, 1),
    )
    yield tr(
        "Both figures exceed what is possible. Every hour of work moves separately, as if jobs could pause at every"
        " hour and the intensities were known in advance. Only the energy beyond that of an unallocated card counts,"
        " because that card draws power anyway. Nothing moves into or out of hours of unknown intensity."
    )
    if deferral.without_floor:
        yield tr(
            "All energy of these models counts, because the power of an unallocated card is unknown: {models}.",
            models=", ".join(map(card_name, deferral.without_floor)),
        )


def _basis(found: Carbon) -> Table:
    return single(
        "carbon_basis",
        (
            fact("pue", "number", "grid.pue"),
            fact("intensity_source", "name", "intensity.source"),
            fact("intensity_is_hourly", "words", lambda each: each.intensity.flat is None, "boolean"),
            fact("mean_g_per_kwh", "number"),
            fact("hours", "count"),
            fact("known_hours", "count"),
            fact("counter_share", "share"),
        ),
        found,
    )


def _deferral(deferral: Deferral) -> Table:
    """Return for programs what moving work by hours saves over all pools, and the work itself."""
    return single(
        "deferral",
        (
            fact("most_hours", "count"),
            *(replace(each, key=f"work_{each.key}") for each in _sum_columns(attrgetter("work"))),
            fact("moved_kwh", "number", lambda each: each.moved_mj / MJ_PER_KWH),
            fact("saved_kg", "number", lambda each: each.saved_g / 1000),
            fact("saved_kg_at_most", "number", lambda each: each.most_saved_g / 1000),
            fact("models_without_free_power", "words", "without_floor", "array"),
        ),
        deferral,
    )
