"""Teams and holders: ranked bars of what they were given, with what became of it, and quotas against what was used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from analytics.capacity.quotas import QuotaUse, against_quota
from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Number, Share
from analytics.language.sentences import say, say_many
from analytics.ledger.summary import ratio
from analytics.report.coverage import WHOLE_FROM
from analytics.scope import Scope
from analytics.states import ALLOCATED_USED_FIRST
from dashboard.charts.bars import NAME_MOST, bar, name_link, table, used_ms
from dashboard.charts.panel import panel
from dashboard.charts.written import fill, legend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.money.accounts import Account
    from analytics.report.coverage import Seen
    from analytics.report.figures import Person
    from dashboard.palette import Palette
    from dashboard.view import View

_FIRST, _MOST = 20, 300
WHOLLY_SEEN = 0.9995
"""From here on a share is shown as 100.0 %."""

_TITLES = {"team": say("Teams"), "holder": say("Holders")}
_QUESTIONS = {
    "team": say("Which teams were given GPUs, and did they use them? A team's name shows its holders."),
    "holder": say("Who was given GPUs, and did they use them? A name shows the holder's jobs."),
}
_HEADER = ("name", "used, held, reserved", "GPU-hours given", "used", "held", "reserved", "efficiency", "rank", "cost")


def people(view: View, colours: Palette, group: str) -> html.Section:
    """The panel of `team` or `holder`; those without a name stand among the others."""
    found = sorted(
        view.report.teams if group == "team" else view.report.holders, key=lambda each: (-each.allocated_ms, each.label)
    )
    accounts = {each.label: each for each in view.report.money.accounts.by(group)}
    name = f"{group}s"
    rows = [_row(view, colours, each, accounts[each.label], found[0].allocated_ms) for each in found[:_MOST]]
    if group == "team":
        rows = [(_team(view, each), *row[1:]) for each, row in zip(found, rows, strict=False)]
    return panel(
        name=name,
        title=view.say(_TITLES[group]),
        question=view.say(_QUESTIONS[group]),
        finding=view.say(_finding(found)),
        body=[legend(view, colours, ALLOCATED_USED_FIRST), *_tables(view, rows, f"{name}-title"), *_rest(view, found)]
        if found
        else [],
        wide=True,
    )


def _tables(view: View, rows: Sequence[Sequence[Any]], title: str) -> list[Any]:
    header = [view.say(say(each)) for each in _HEADER]
    shown = [table(header, rows[:_FIRST], title, words=(0, 1))]
    if len(rows) > _FIRST:
        more = view.say(say_many("{number} more", "{number} more", len(rows) - _FIRST))
        shown.append(
            html.Details([html.Summary(more), table(header, rows[_FIRST:], title, words=(0, 1))], className="more")
        )
    note = "Efficiency is the used share of the time given; its rank is among those who were given GPUs."
    return [*shown, html.P(view.say(say(note)), className="note")]


def _rest(view: View, found: Sequence[Person]) -> list[html.P]:
    rest = found[_MOST:]
    said = say(
        "and {number} more with {hours} GPU-hours",
        number=Number(len(rest)),
        hours=GpuHours(sum(each.allocated_ms for each in rest)),
    )
    return [html.P(view.say(said), className="note")] if rest else []


def _finding(found: Sequence[Person]) -> str:
    if not found:
        return say("Nobody was given a GPU.")
    total_ms = sum(each.allocated_ms for each in found)
    idle = max(found, key=lambda each: each.held_ms + each.reserved_ms)
    lost_ms = idle.held_ms + idle.reserved_ms
    if not lost_ms:
        return say("{hours} GPU-hours were given out, and all of them were used.", hours=GpuHours(total_ms))
    return say(
        "{share} of {hours} GPU-hours given out were held or reserved without use; the most, {most}, by {name}.",
        share=Share(ratio(sum(each.held_ms + each.reserved_ms for each in found), total_ms)),
        hours=GpuHours(total_ms),
        most=GpuHours(lost_ms),
        name=say(idle.label) if idle.name is None else plain(idle.name, NAME_MOST),
    )


def _row(view: View, colours: Palette, each: Person, account: Account, most_ms: float) -> tuple[Any, ...]:
    speaks = view.language
    return (
        _holder(view, each),
        bar(account.state_ms, most_ms, colours),
        speaks.hours(account.allocated_ms),
        speaks.hours(used_ms(account.state_ms)),
        speaks.hours(account.state_ms["held"]),
        speaks.hours(account.state_ms["reserved"]),
        speaks.percent(each.efficiency),
        "" if each.rank_efficiency is None else f"{each.rank_efficiency}/{each.ranked}",
        paid(view, each.cents),
    )


def paid(view: View, cents: int | None) -> str:
    """Whole cents as money of the report's currency."""
    return view.language.money(None if cents is None else cents / 100, view.report.money.currency)


def _team(view: View, each: Person) -> Any:
    if each.name is None:
        return view.say(each.label)
    return name_link(each.name, "/holders", view.query.on_every_page.but(team=each.name))


def _holder(view: View, each: Person) -> Any:
    if each.name is None:
        return view.say(each.label)
    link = name_link(each.name, "/holders", view.query.on_every_page.but(holder=each.name))
    return [link, html.Span(html.Bdi(plain(each.team, NAME_MOST)), className="of-team")] if each.team else link


def quotas(view: View, colours: Palette) -> html.Section | None:
    """Each team's quota against what it had at once, the widest gap first and unknown ones last.

    None where no team of the view has one, and for a part of the GPUs: a quota is for all of them.
    """
    uses = sorted(quota_uses(view), key=_by_gap)
    if not uses:
        return None
    header = ("team", "used and given of the quota", "quota", "given on average", "used on average", "most at once", "hours above the quota")  # fmt: skip
    most = max(max(use.quota_gpus, use.most or 0.0) for _, use in uses)
    rows = [_quota_row(view, colours, name, use, most) for name, use in uses]
    return panel(
        name="quotas",
        title=view.say(say("Quotas")),
        question=view.say(say("Do teams need what they may have? GPUs at once, over the whole window.")),
        finding=view.say(quota_finding(view.report.seen, uses)),
        body=[
            _quota_legend(view, colours),
            table([view.say(say(each)) for each in header], rows, "quotas-title", words=(0, 1)),
            *_quota_notes(view),
        ],
        wide=True,
    )


def _by_gap(named: tuple[str, QuotaUse]) -> tuple[bool, float, str]:
    name, use = named
    gap = _gap(use)
    return gap is None, -(gap or 0.0), name


def _gap(use: QuotaUse) -> float | None:
    """GPUs of the quota that were not used on average; None where that is not known."""
    return None if use.working_mean is None else use.quota_gpus - use.working_mean


def _quota_legend(view: View, colours: Palette) -> html.Ul:
    looks = (("active", say("used on average")), ("held", say("given on average and not used")))
    items = [
        html.Li([html.Span(className=f"swatch {state}", style={"background": fill(colours, state)}), view.say(words)])
        for state, words in looks
    ]
    mark = html.Span("┃", style={"color": colours.text}, **{"aria-hidden": "true"})
    items.append(html.Li([mark, " ", view.say(say("most at once; the bar ends where the quota does"))]))
    return html.Ul(items, className="legend", **{"aria-label": view.say(say("Bars"))})


def _quota_notes(view: View) -> list[html.P]:
    """What nobody saw is in no mean: those of a window with gaps are too low."""
    if (view.report.seen.share or 0.0) >= WHOLLY_SEEN:
        return []
    note = say(
        "{share} of the GPU time was observed: the averages and the most may have been higher.",
        share=Share(view.report.seen.share),
    )
    return [html.P(view.say(note), className="note")]


def _quota_bar(colours: Palette, use: QuotaUse, most: float) -> html.Div:
    """The quota as a bar as long as it is beside the largest; in it what was used and given, and a line at the most."""

    def part(state: str, gpus: float) -> html.Span:
        width = f"{100 * gpus / use.quota_gpus:.2f}%" if use.quota_gpus else "0%"
        return html.Span(className=f"part {state}", style={"width": width, "background": fill(colours, state)})

    used, given = use.working_mean, use.allocated_mean
    known = [] if used is None or given is None else [("active", used), ("held", given - used)]
    track = html.Div(
        [part(state, gpus) for state, gpus in known if gpus > 0],
        className="lengths",
        style={"width": f"{100 * use.quota_gpus / most:.2f}%" if most else "0%", "minWidth": "0"},
    )
    mark = html.Span(
        style={"position": "absolute", "left": f"calc({100 * (use.most or 0.0) / most if most else 0:.2f}% - 1px)",
               "top": "-3px", "height": "20px", "width": "2px", "background": colours.text}
    )  # fmt: skip
    return html.Div(
        [track, *([] if use.most is None else [mark])],
        className="quota",
        style={"position": "relative", "minWidth": "90px"},
        **{"aria-hidden": "true"},
    )


def quota_uses(view: View) -> list[tuple[str, QuotaUse]]:
    """The teams of the view with a quota, by name."""
    if not view.report.scope.of_gpus.is_all:
        return []
    teams = view.whole.money.owners.teams()
    asked = view.report.scope.team
    found = [each for name, each in teams.items() if each.quota_gpus is not None and asked in (None, name)]
    summary = view.report.summary
    return [
        (
            each.name,
            against_quota(
                view.whole.narrowed(view.part.inside, Scope(team=each.name)).stretches,
                each.quota_gpus or 0.0,
                summary.since_ms,
                summary.until_ms,
            ),
        )
        for each in found
    ]


def quota_finding(seen: Seen, uses: Sequence[tuple[str, QuotaUse]]) -> str:
    """The widest gap; none where too little was observed: hours that nobody saw would pass for hours without use."""
    if not seen.is_whole:
        return say(
            "Only {share} of the GPU time was observed, {least} are wanted: whether a quota is too wide is not known.",
            share=Share(seen.share), least=Share(WHOLE_FROM, 0),
        )  # fmt: skip
    known = [(gap, name, use) for name, use in uses if (gap := _gap(use)) is not None]
    if not known:
        return say("The window has no time.")
    _, name, use = max(known, key=lambda each: each[0])
    return say(
        "The widest gap: {team} may have {quota} GPUs at once and used {used} on average.",
        team=plain(name, NAME_MOST),
        quota=Number(use.quota_gpus),
        used=Number(use.working_mean, 1),
    )


def _quota_row(view: View, colours: Palette, name: str, use: QuotaUse, most: float) -> tuple[Any, ...]:
    speaks = view.language
    hours = say("{number} of {hours}", number=Number(use.hours_above), hours=Number(use.hours))
    return (
        name_link(name, "/holders", view.query.on_every_page.but(team=name)),
        _quota_bar(colours, use, most),
        speaks.number(use.quota_gpus),
        speaks.number(use.allocated_mean, 1),
        speaks.number(use.working_mean, 1),
        speaks.number(use.most, 1),
        view.say(hours) if use.hours else view.say("unknown"),
    )
