"""Energy and carbon dioxide of use and of parking, by team; what holding a card costs, and what other hours would save."""

from __future__ import annotations

from collections.abc import Iterator

from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.money.energy import MJ_PER_KWH
from analytics.money.priced_segments import UNNAMED
from analytics.plan.carbon import Carbon, ParkingPower
from analytics.plan.carbon_sum import CarbonSum
from analytics.plan.deferral import Deferral
from analytics.plan.hourly_energy import FREE, HELD, REST, USED
from analytics.tables.names import NAME_MOST, account_name, card_name
from analytics.tables.plan_carbon_chart import hours_chart
from analytics.tables.table import Cell, Column, Table

_TITLE = tr("Energy and CO2 of use and of parking")
_QUESTION = tr("How much energy and CO2 do GPUs take while they work, and while nobody uses them?")


def carbon_sections(found: Carbon) -> tuple[Table | None, ...]:
    """All sections, in order; None for what the reader has no business with."""
    return carbon_parts(found), carbon_by_team(found), parking_power(found), better_hours(found)


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
    names = {
        USED: tr("used"), HELD: tr("held without use"), FREE: tr("free"), REST: tr("neither"),
    }  # fmt: skip
    rows = [(names[part], each) for part, each in found.parts.items() if each.energy.total_ms]
    return Table(
        name="carbon",
        title=_TITLE,
        question=_QUESTION,
        headline=carbon_sentence(found),
        columns=(
            Column("part", tr("GPU time"), "words"),
            Column("gpu_hours", tr("GPU-hours"), "gpu_hours"),
            Column("kwh", tr("energy, kWh"), "number"),
            Column("known", tr("known of its time"), "share"),
            Column("co2", tr("CO2, kg"), "number"),
            Column("rated", tr("rated of its kWh"), "share"),
        ),
        rows=tuple((name, GpuHours(each.energy.total_ms), *_figures(each)) for name, each in [*rows, (tr("all"), found.total)]),
        notes=tuple(_notes(found)),
    )  # fmt: skip


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
            kwh=drawn, co2=Number(total.co2_kg, 1), held=Number(parts[HELD].co2_kg, 1),
        )  # fmt: skip
    parked = parts[HELD] + parts[FREE]
    return tr(
        "The site drew {kwh} kWh for these GPUs, which stand for {co2} kg of CO2; {parked} kg of it while nobody computed: {held} held without use, {free} free.",
        kwh=drawn, co2=Number(total.co2_kg, 1), parked=Number(parked.co2_kg, 1),
        held=Number(parts[HELD].co2_kg, 1), free=Number(parts[FREE].co2_kg, 1),
    )  # fmt: skip


def _figures(each: CarbonSum) -> tuple[Cell, ...]:
    share = each.energy.known_share
    return Number(each.kwh, 1), Share(share), Number(each.co2_kg, 1), Share(each.rated_share)


def _notes(found: Carbon) -> Iterator[str]:
    source = plain(found.intensity.source, NAME_MOST)
    yield tr(
        "kWh are of the GPUs, as far as they are known; CO2 is of what the site draws for them, with PUE {pue}, and of the kWh that are rated: those in hours whose intensity is known. Neither: not observed, broken, or a GPU that MIG splits, whose counter stands for all of its instances.",
        pue=Number.as_given(found.grid.pue),
    )  # fmt: skip
    if found.intensity.flat is not None:
        yield tr(
            "Intensity: {number} g of CO2 per kWh in every hour ({source}). With a file by the hour (--intensity, or plan.carbon) it would be that of each hour.",
            number=Number.as_given(found.intensity.flat), source=source,
        )  # fmt: skip
    elif found.mean_g_per_kwh is not None:
        yield tr(
            "Intensity: {source}, known for {known} of the window's {hours} hours, {mean} g of CO2 per kWh on average. An hour that it lacks is unknown and not filled.",
            source=source, known=Number(found.known_hours), hours=Number(found.hours),
            mean=Number(found.mean_g_per_kwh, 0),
        )  # fmt: skip
    else:
        yield tr("Intensity: {source} has none of the window's {hours} hours.", source=source, hours=Number(found.hours))  # fmt: skip
    if found.counter_share is not None:
        yield tr(
            "Energy is by the GPUs' own counters for {share} of the time for which it is known, else power times time.",
            share=Share(found.counter_share),
        )  # fmt: skip


def carbon_by_team(found: Carbon) -> Table:
    """A row for each team, one for what is nobody's, and their sum."""
    rows = [(_team_name(each.label), each.parts[HELD], each.total) for each in found.teams]
    return Table(
        name="carbon_teams",
        title=tr("Energy and CO2 by team"),
        question=tr("Whose energy and CO2 was it?"),
        headline=_team_sentence(found),
        columns=(
            Column("team", tr("team"), "team"),
            Column("held_kwh", tr("held, kWh"), "number"),
            Column("kwh", tr("all, kWh"), "number"),
            Column("known", tr("known of its time"), "share"),
            Column("held_co2", tr("held, kg CO2"), "number"),
            Column("co2", tr("CO2, kg"), "number"),
            Column("rated", tr("rated of its kWh"), "share"),
        ),
        rows=tuple(_team_row(*row) for row in [*rows, (tr("all"), found.parts[HELD], found.total)]),
    )


def _team_name(label: str) -> str:
    return account_name(label) if label in UNNAMED else plain(label, NAME_MOST)


def _team_row(name: str, held: CarbonSum, total: CarbonSum) -> tuple[Cell, ...]:
    kwh, known, co2, rated = _figures(total)
    return name, Number(held.kwh, 1), kwh, known, Number(held.co2_kg, 1), co2, rated


def _team_sentence(found: Carbon) -> str:
    holders = [each for each in found.teams if each.parts[HELD].co2_kg and each.label not in UNNAMED]
    if not holders:
        return tr("No team is known to have held GPUs without use.")
    most = max(holders, key=lambda each: each.parts[HELD].co2_g)
    return tr(
        "Most by holding without use: {team}, {co2} kg of CO2.",
        team=_team_name(most.label), co2=Number(most.parts[HELD].co2_kg, 1),
    )  # fmt: skip


def parking_power(found: Carbon) -> Table | None:
    """A row for each model of which both powers were observed; None for people."""
    if found.parking is None:
        return None
    cost = found.grid.price_per_kwh is not None
    return Table(
        name="parking_power",
        title=tr("What holding a card costs"),
        question=tr("How much more does a card draw that somebody holds without use than a free one?"),
        headline=_parking_sentence(found),
        columns=(
            Column("model", tr("model"), "name"),
            Column("free_w", tr("free, W"), "number"),
            Column("held_w", tr("held, W"), "number"),
            Column("extra_kwh", tr("more, kWh"), "number"),
            Column("extra_co2", tr("more, kg CO2"), "number"),
            Column("year_kwh", tr("a year, kWh"), "number"),
            Column("year_co2", tr("a year, kg CO2"), "number"),
            *([Column("year_cost", tr("a year, {currency}", currency=found.currency), "number")] if cost else []),
        ),
        rows=tuple(_parking_row(found, each) for each in found.parking),
        notes=(
            tr(
                "W are means over all cards of the model, by the ledger's energy. More: what the held ones took beyond the free ones' power, in this window. A year: one card held all year instead of free, as the site draws it with PUE, at the window's mean intensity."
            ),
        )
        if found.parking
        else (),
    )


def _parking_row(found: Carbon, each: ParkingPower) -> tuple[Cell, ...]:
    extra, watts = each.extra, each.extra_w
    cost = found.year_cost(watts)
    return (
        card_name(each.model), Number(each.free_w, 1), Number(each.held_w, 1),
        Number(extra.kwh, 1), Number(extra.co2_kg, 1), Number(found.year_kwh(watts), 0), Number(found.year_co2_kg(watts), 0),
        *(() if cost is None else (Number(cost, 0),)),
    )  # fmt: skip


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
        model=card_name(first.model), held=Number(first.held_w, 0), free=Number(first.free_w, 0), watt=one,
    )  # fmt: skip


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
        columns=() if deferral is None else (
            Column("hour", tr("hour of the day"), "words"),
            Column("g_per_kwh", tr("grid, g CO2 per kWh"), "number"),
            Column("free_gpus", tr("free GPUs"), "number"),
            Column("kwh", tr("can wait, kWh"), "number"),
            Column("best_kwh", tr("at best, kWh"), "number"),
        ),
        rows=() if deferral is None else tuple(
            (f"{each.hour:02d}:00", Number(each.g_per_kwh, 0), Number(each.free_gpus, 1), Number(each.mj / MJ_PER_KWH, 1), Number(each.best_mj / MJ_PER_KWH, 1))
            for each in deferral.hours
        ),
        chart=None if deferral is None else hours_chart(deferral),
        notes=() if deferral is None else tuple(_deferral_notes(deferral)),
    )  # fmt: skip


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
        most=Number(deferral.most_saved_g / 1000, 1), share=Share(deferral.most_saved_g / total if total else None),
        hours=tr_many("{number} hour", "{number} hours", deferral.most_hours),
    )  # fmt: skip


def _deferral_notes(deferral: Deferral) -> Iterator[str]:
    work = deferral.work
    yield tr(
        "Work that can wait: Slurm jobs, unless the name of the job, its partition or its QOS says that somebody waits (interactive, notebook, jupyter, debug, serving, inference, prod), and what the owners table calls best-effort. It took {kwh} kWh, known for {known} of its time; {moved} kWh would move.",
        kwh=Number(work.kwh, 1), known=Share(work.energy.known_share), moved=Number(deferral.moved_mj / MJ_PER_KWH, 1),
    )  # fmt: skip
    yield tr(
        "The plan behind these hours moves all work of an hour in a pool alike, and saves {saved} kg; one that chooses what to move saves at most the figure above.",
        saved=Number(deferral.saved_g / 1000, 1),
    )  # fmt: skip
    yield tr(
        "Both are more than can be had: each hour of work moves by itself, as if every job could be cut and paused at every hour, and the intensities were known before. What counts is the energy beyond that of a free card, which draws power anyhow. Nothing moves out of or into hours of unknown intensity."
    )
    if deferral.without_floor:
        yield tr(
            "Of these models nobody knows what a free card draws, and all of their energy counts: {models}.",
            models=", ".join(map(card_name, deferral.without_floor)),
        )  # fmt: skip
