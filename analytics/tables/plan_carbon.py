"""Energy and carbon dioxide of use and of parking, by team; what holding a card costs, and what other hours would save."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

from analytics.language.plain_text import plain
from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.money.energy import MJ_PER_KWH
from analytics.money.priced_segments import UNNAMED
from analytics.plan.carbon import Carbon, TeamCarbon
from analytics.plan.deferral import FREE, HELD, PARTS, REST, USED, CarbonSum, Deferral, HourOfDay
from analytics.tables.chart import Chart, ChartPlace, Line, Panel
from analytics.tables.names import NAME_MOST, account_name, card_name
from analytics.tables.table import Column, Table, column, drawn, fact, for_programs, single

_TITLE = tr("Energy and CO2 of use and of parking")
_QUESTION = tr("How much energy and CO2 do GPUs take while they work, and while nobody uses them?")

_ALL = "all"
_ALL_TEAMS = "(all)"
"""The sum over all teams, in brackets as other labels that are no team's name."""
_PARTS = {USED: tr("used"), HELD: tr("held without use"), FREE: tr("free"), REST: tr("neither"), _ALL: tr("all")}


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


def cannot_rate(wrong: str) -> Table:
    """Where the file of the grid's intensity cannot be used."""
    return Table(
        name="carbon",
        title=_TITLE,
        question=_QUESTION,
        headline=tr("There is no answer: the grid's intensity cannot be used. {wrong}", wrong=wrong),
    )


def carbon_parts(found: Carbon) -> Table:
    """A row for each part of the GPU time, and their sum."""
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
    """Columns over the energy and the CO2 that `of` returns for a row."""
    return (
        column("gpu_hours", tr("GPU-hours"), "gpu_hours", lambda row: of(row).energy.total_ms),
        column("kwh", tr("energy, kWh"), "number", lambda row: Number(of(row).kwh, 1)),
        column("known_share", tr("known of its time"), "share", lambda row: Share(of(row).energy.known_share)),
        column("co2_kg", tr("CO2, kg"), "number", lambda row: Number(of(row).co2_kg, 1)),
        column("rated_share", tr("rated of its kWh"), "share", lambda row: Share(of(row).rated_share)),
    )


def carbon_sentence(found: Carbon) -> str:
    """What all of it came to, and how much of that was parking."""
    total, parts = found.total, found.parts
    if total.kwh is None or not total.energy.known_ms:
        return tr("No energy is known: neither energy counters nor power were read.")
    drawn = Number(total.kwh * found.grid.pue, 1)
    if total.co2_kg is None:
        return tr("The site drew {kwh} kWh for these GPUs; no hour of it has a known intensity.", kwh=drawn)
    if not parts[FREE].energy.total_ms:
        return tr(
            "The site drew {kwh} kWh for these GPUs, which stand for {co2} kg of CO2; {held} kg of it while they were held without use.",
            kwh=drawn,
            co2=Number(total.co2_kg, 1),
            held=Number(parts[HELD].co2_kg, 1),
        )
    parked = parts[HELD] + parts[FREE]
    return tr(
        "The site drew {kwh} kWh for these GPUs, which stand for {co2} kg of CO2; {parked} kg of it while nobody computed: {held} held without use, {free} free.",
        kwh=drawn,
        co2=Number(total.co2_kg, 1),
        parked=Number(parked.co2_kg, 1),
        held=Number(parts[HELD].co2_kg, 1),
        free=Number(parts[FREE].co2_kg, 1),
    )


def _notes(found: Carbon) -> Iterator[str]:
    source = plain(found.intensity.source, NAME_MOST)
    yield tr(
        "kWh are of the GPUs, as far as they are known; CO2 is of what the site draws for them, with PUE {pue}, and of the kWh that are rated: those in hours whose intensity is known. Neither: not observed, broken, or a GPU that MIG splits, whose counter stands for all of its instances.",
        pue=Number.as_given(found.grid.pue),
    )
    if found.intensity.flat is not None:
        yield tr(
            "Intensity: {number} g of CO2 per kWh in every hour ({source}). With a file by the hour (--intensity, or plan.carbon) it would be that of each hour.",
            number=Number.as_given(found.intensity.flat),
            source=source,
        )
    elif found.mean_g_per_kwh is not None:
        yield tr(
            "Intensity: {source}, known for {known} of the window's {hours} hours, {mean} g of CO2 per kWh on average. An hour that it lacks is unknown and not filled.",
            source=source,
            known=found.known_hours,
            hours=found.hours,
            mean=Number(found.mean_g_per_kwh, 0),
        )
    else:
        yield tr("Intensity: {source} has none of the window's {hours} hours.", source=source, hours=found.hours)
    if found.counter_share is not None:
        yield tr(
            "Energy is by the GPUs' own counters for {share} of the time for which it is known, else power times time.",
            share=Share(found.counter_share),
        )


def carbon_by_team(found: Carbon) -> Table:
    """A row for each team, one for what is nobody's, and their sum."""
    gpu_hours, _, known_share, _, rated_share = _sum_columns(attrgetter("total"))
    return Table(
        name="carbon_teams",
        title=tr("Energy and CO2 by team"),
        question=tr("Whose energy and CO2 was it?"),
        headline=_team_sentence(found),
        columns=(
            column("team", tr("team"), "team", lambda each: _team_name(each.label), "label"),
            replace(gpu_hours, audience="programs"),
            column("held_kwh", tr("held, kWh"), "number", lambda each: Number(each.parts[HELD].kwh, 1)),
            column("kwh", tr("all, kWh"), "number", lambda each: Number(each.total.kwh, 1)),
            known_share,
            column("held_co2_kg", tr("held, kg CO2"), "number", lambda each: Number(each.parts[HELD].co2_kg, 1)),
            column("co2_kg", tr("CO2, kg"), "number", lambda each: Number(each.total.co2_kg, 1)),
            rated_share,
        ),
        rows=(*found.teams, TeamCarbon(_ALL_TEAMS, found.parts)),
    )


def _team_name(label: str) -> str:
    if label == _ALL_TEAMS:
        return tr("all")
    return account_name(label) if label in UNNAMED else plain(label, NAME_MOST)


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
    holders = [each for each in found.teams if each.parts[HELD].co2_kg and each.label not in UNNAMED]
    if not holders:
        return tr("No team is known to have held GPUs without use.")
    most = max(holders, key=lambda each: each.parts[HELD].co2_g)
    return tr(
        "Most by holding without use: {team}, {co2} kg of CO2.",
        team=_team_name(most.label),
        co2=Number(most.parts[HELD].co2_kg, 1),
    )


def parking_power(found: Carbon) -> Table | None:
    """A row for each model of which both powers were observed; None for people."""
    if found.parking is None:
        return None
    return Table(
        name="parking_power",
        title=tr("What holding a card costs"),
        question=tr("How much more does a card draw that somebody holds without use than a free one?"),
        headline=_parking_sentence(found),
        columns=(
            column("model", tr("model"), "name", lambda each: card_name(each.model), "model"),
            fact("free_gpu_hours", "gpu_hours", "free_ms"),
            fact("held_gpu_hours", "gpu_hours", "held_ms"),
            column("free_w", tr("free, W"), "number", lambda each: Number(each.free_w, 1)),
            column("held_w", tr("held, W"), "number", lambda each: Number(each.held_w, 1)),
            column("extra_kwh", tr("more, kWh"), "number", lambda each: Number(each.extra.kwh, 1)),
            column("extra_co2_kg", tr("more, kg CO2"), "number", lambda each: Number(each.extra.co2_kg, 1)),
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
            tr(
                "W are means over all cards of the model, by the ledger's energy. More: what the held ones took beyond the free ones' power, in this window. A year: one card held all year instead of free, as the site draws it with PUE, at the window's mean intensity."
            ),
        )
        if found.parking
        else (),
    )


def _parking_sentence(found: Carbon) -> str:
    if not found.parking:
        return tr("No model was seen both free and held without use for an hour of known energy.")
    first = found.parking[0]
    watt, co2 = Number(found.year_kwh(1.0), 1), found.year_co2_kg(1.0)
    one = (
        tr("A watt that is drawn all year takes {kwh} kWh.", kwh=watt)
        if co2 is None
        else tr("A watt that is drawn all year takes {kwh} kWh, or {co2} kg of CO2.", kwh=watt, co2=Number(co2, 1))
    )
    return tr(
        "{model} draws {held} W while somebody holds it without use, {free} W while it is free. {watt}",
        model=card_name(first.model),
        held=Number(first.held_w, 0),
        free=Number(first.free_w, 0),
        watt=one,
    )


_INTENSITY = column("g_per_kwh", tr("grid, g CO2 per kWh"), "number", lambda each: Number(each.g_per_kwh))
_KWH = column("kwh", tr("can wait, kWh"), "number", lambda each: Number(each.mj / MJ_PER_KWH, 1))
_BEST_KWH = column("best_kwh", tr("at best, kWh"), "number", lambda each: Number(each.best_mj / MJ_PER_KWH, 1))


def better_hours(found: Carbon) -> Table | None:
    """A row for each hour of the day, if every hour's intensity is not the same; None for people."""
    if found.parking is None:
        return None
    deferral = found.deferral
    return Table(
        name="better_hours",
        title=tr("What other hours would save"),
        question=tr("How much CO2 would work that can wait save in hours of a cleaner grid?"),
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
    """Return a panel for the grid's intensity, and one for the energy of work that can wait: as it was, and at best."""
    places = tuple(ChartPlace(f"{each.hour:02d}:00") for each in hours)
    intensity = Line(tr("the grid"), "held", **drawn(_INTENSITY, hours))
    before = Line(tr("as it was"), "low", **drawn(_KWH, hours))
    best = Line(tr("at best"), "active", **drawn(_BEST_KWH, hours))
    return Chart(
        (
            Panel(_INTENSITY.title, (intensity,), places),
            Panel(_KWH.title, (before, best), places),
        )
    )


def _deferral_sentence(found: Carbon) -> str:
    deferral = found.deferral
    if deferral is None:
        return tr(
            "This takes the grid's intensity by the hour: name a file by --intensity or plan.carbon (docs/planning.md)."
        )
    if not deferral.work.energy.known_ms:
        return tr("No work that can wait is known, with its energy.")
    if not found.known_hours:
        return tr("No hour of the window has a known intensity.")
    total = found.total.co2_g
    return tr(
        "At most {most} kg of CO2 ({share} of all), if work that can wait ran up to {hours} later, on GPUs of its pool that stood free.",
        most=Number(deferral.most_saved_g / 1000, 1),
        share=Share(deferral.most_saved_g / total if total else None),
        hours=tr_many("{number} hour", "{number} hours", deferral.most_hours),
    )


def _deferral_notes(deferral: Deferral) -> Iterator[str]:
    work = deferral.work
    yield tr(
        "Work that can wait: Slurm jobs, unless the name of the job, its partition or its QOS says that somebody waits (interactive, notebook, jupyter, debug, serving, inference, prod), and what the owners table calls best-effort. It took {kwh} kWh, known for {known} of its time; {moved} kWh would move.",
        kwh=Number(work.kwh, 1),
        known=Share(work.energy.known_share),
        moved=Number(deferral.moved_mj / MJ_PER_KWH, 1),
    )
    yield tr(
        "The plan behind these hours moves all work of an hour in a pool alike, and saves {saved} kg; one that chooses what to move saves at most the figure above.",
        saved=Number(deferral.saved_g / 1000, 1),
    )
    yield tr(
        "Both are more than can be had: each hour of work moves by itself, as if every job could be cut and paused at every hour, and the intensities were known before. What counts is the energy beyond that of a free card, which draws power anyhow. Nothing moves out of or into hours of unknown intensity."
    )
    if deferral.without_floor:
        yield tr(
            "Of these models nobody knows what a free card draws, and all of their energy counts: {models}.",
            models=", ".join(map(card_name, deferral.without_floor)),
        )


def _basis(found: Carbon) -> Table:
    """Return for programs what the CO2 rests on."""
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
