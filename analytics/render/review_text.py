"""`fallow findings` as plain text of at most 100 columns: what it adds up to, then each finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from analytics.decide.filters import Selection
from analytics.decide.readiness import waiting_rules
from analytics.decide.review import Review
from analytics.decide.totals import FindingTotals, totals
from analytics.language.language import ENGLISH
from analytics.language.plain_text import count, hours, moment, plain, wrap
from analytics.ledger.summary import Summary
from analytics.money.owners import Owners
from analytics.names import JOINER
from analytics.quality.model import named
from analytics.render.findings_text import Beside, findings_text, gone_lines
from analytics.render.report.text import for_text
from analytics.tables.findings import reversals_text
from analytics.tables.readiness import waiting
from analytics.workloads.model import Context, Finding
from analytics.workloads.wording import hours_by_threshold
from fallow.clock import DAY_MS, HOUR_MS

_WIDTH = 100
_NAMED = 8
"""Names in a hint; nobody reads more."""
BLOCKS = 20
"""Findings that are shown in full before each becomes one line."""


@dataclass(frozen=True)
class Form:
    """How much of it is shown."""

    limit: int | None = None
    details: bool = False
    gone: bool = False


def review_text(review: Review, summary: Summary, chosen: Selection, form: Form, now_ms: int) -> str:
    """The whole page."""
    sums = totals(chosen.listed)
    blocks = [_wrapped(_head(review, summary, chosen, sums))]
    if chosen.listed:
        blocks += ["\n".join(_by_rule(sums))]
    if chosen.listed or not (chosen.emptied_by or chosen.suppressed):
        most = None if form.details else BLOCKS
        blocks += [findings_text(chosen.listed, form.limit, beside(review, now_ms), most)]
    if chosen.gone:
        blocks += ["\n".join(["GONE SINCE LAST WEEK", *gone_lines(chosen.gone)]) if form.gone else _gone(chosen.gone)]
    return "\n\n".join(blocks)


def beside(review: Review, now_ms: int) -> Beside:
    """What the blocks say beyond each finding; `now_ms` is the wall clock's time."""
    context = review.context
    if context.latest:
        return Beside(context.inventory)
    end_ms = context.window.until_ms
    if end_ms is not None and end_ms <= now_ms:
        return Beside(context.inventory, "only a look: the window ended in the past, and its processes may be gone")
    age_ms = now_ms - context.until_ms
    age = f"{age_ms / DAY_MS:,.0f} days" if age_ms >= 2 * DAY_MS else f"{age_ms / HOUR_MS:,.0f} h"
    seen = f"is {age} old" if age_ms > 0 else "is from a time to come"
    return Beside(context.inventory, f"only a look: the newest row {seen}")


def _wrapped(lines: Sequence[str]) -> str:
    return "\n".join(line for each in lines for line in wrap(each, _WIDTH, "", "  "))


def _head(review: Review, summary: Summary, chosen: Selection, sums: FindingTotals) -> list[str]:
    span = f"{moment(review.context.since_ms)} to {moment(review.context.until_ms)}"
    hidden = len(chosen.suppressed)
    fleet = "whole fleet, " if chosen.filtered else ""
    return [
        f"{count(len(chosen.listed), 'finding')} over {count(summary.totals.gpus, 'GPU')}, {span}",
        *([_why_none(chosen, review.context.owners)] if chosen.emptied_by else []),
        *([_worth(sums)] if chosen.listed else []),
        *([_ahead(review.context)] if review.context.ahead else []),
        f"{fleet}held without a kernel: {hours_by_threshold(review.sensitivity)}{_sampled(summary)}",
        *([fleet + reversals_text(review.reversals)] if review.reversals else []),
        *([for_text(ENGLISH).translate(more)] if (more := waiting(waiting_rules(review.context))) else []),
        *([f"{count(hidden, 'finding')} suppressed; --all shows them"] if hidden else []),
    ]


def _sampled(summary: Summary) -> str:
    """What point samples alone say of the held time."""
    open_ms = summary.totals.unconfirmed_ms.get("held", 0)
    return (
        f"; of all held GPU-hours, {hours(open_ms)} by point samples that nothing confirms"
        if open_ms and summary.totals.leaves_open
        else ""
    )


def _why_none(chosen: Selection, owners: Owners) -> str:
    """Which filter leaves nothing of what those before it leave, and what it could have been."""
    filters, left = chosen.filters, chosen.before
    others = "" if len(left) == chosen.offered else " that the other filters leave"
    none = f"none of the {count(len(left), 'finding')}{others}"
    if chosen.emptied_by == "rules":
        return f"{none} is of rule {' or '.join(filters.rules)}"
    if chosen.emptied_by == "categories":
        return f"{none} is of category {' or '.join(filters.categories)}"
    if chosen.emptied_by == "holder":
        near = _near("users with findings", str(filters.holder), _single(each.holder for each in left))
        return f"{none} has user '{plain(str(filters.holder))}'; {near}"
    return _no_team(none, chosen, owners) if chosen.emptied_by == "team" else _no_cost(none, chosen)


def _no_team(none: str, chosen: Selection, owners: Owners) -> str:
    wanted = str(chosen.filters.team)
    if not owners.by_name:
        return "no owners file: no finding has a team; set money.owners"
    if wanted not in owners.teams():
        return f"the owners file has no team '{plain(wanted)}'; {_near('its teams', wanted, list(owners.teams()))}"
    near = _near("teams with findings", wanted, _single(each.team for each in chosen.before))
    return f"{none} has team '{plain(wanted)}'; {near}"


def _no_cost(none: str, chosen: Selection) -> str:
    priced = [(each.cost, each.currency) for each in chosen.before if each.cost is not None]
    if not priced:
        return f"{none} has a price: see docs/money.md"
    cost, currency = max(priced, key=lambda each: each[0])
    return f"{none} costs {_money(chosen.filters.min_cost, currency)} or more; the most is {_money(cost, currency)}"


def _single(joined: Iterable[str | None]) -> list[str]:
    return sorted({name for each in joined for name in (each or "").split(JOINER) if name})


def _near(what: str, wanted: str, names: Sequence[str]) -> str:
    near = get_close_matches(wanted, names, n=3)
    if near:
        return f"near it: {', '.join(map(plain, near))}"
    rest = ", …" if len(names) > _NAMED else ""
    return f"{what}: {', '.join(map(plain, names[:_NAMED])) or 'none'}{rest}"


def _money(amount: float | None, currency: str | None) -> str:
    """`1,234.50 USD`, `-` where it is not known."""
    return "-" if amount is None else f"{amount:,.2f} {plain(currency or '')}".rstrip()


def _ahead(context: Context) -> str:
    hosts = sorted(context.ahead)
    return f"the clock of {named(hosts, 'host')} is ahead: nothing of {'it' if len(hosts) == 1 else 'them'} is taken back until it is set"


def _worth(sums: FindingTotals) -> str:
    surely = (
        f" (each counted once), {sums.gpus_to_take_surely} of them with high confidence" if sums.gpus_to_take else ""
    )
    asked = f"; {count(sums.gpus_to_ask, 'GPU')} to ask about" if sums.gpus_to_ask else ""
    unpriced = f"; {count(sums.unpriced, 'finding')} without a price" if 0 < sums.unpriced < sums.findings else ""
    named_text = count(sums.gpus_to_take, "GPU") if sums.gpus_to_take else "no GPU"
    spare = "; `fallow opportunities` says how many of them the pools can spare" if sums.gpus_to_take else ""
    return f"{named_text} to take back{surely}{asked}{unpriced}{spare}"


def _by_rule(sums: FindingTotals) -> list[str]:
    """A line for each rule, the most to take back first; hours of several rules may be the same, so there is no sum."""
    lines = [f"  {'rule':<24} {'findings':>8} {'GPUs':>6} {'to take':>8} {'to ask':>7} {'GPU-hours':>12} {'cost':>18}"]
    for each in sums.rules.values():
        cost = _money(None if each.cost is None else each.cost - (each.unconfirmed_cost or 0.0), each.currency)
        lines.append(
            f"  {each.rule:<24} {each.findings:>8} {each.gpus:>6} {each.gpus_to_take:>8} {each.gpus_to_ask:>7} {each.gpu_hours:>12,.1f} {cost:>18}"
        )
    lines += [
        f"  {each.rule}: {_money(each.unconfirmed_cost, each.currency)} left out, which point samples alone call idle"
        for each in sums.rules.values()
        if each.unconfirmed_cost
    ]
    if len(sums.rules) > 1:
        lines.append("  rules may be about the same hours of a GPU: their GPU-hours and costs do not add up")
    return lines


def _gone(gone: Sequence[Finding]) -> str:
    """`30 findings closed since last week (held 17, inefficient 13)`, the wrong ones apart."""
    lines = []
    for status in ("closed", "unseen", "reversed"):
        rules = Counter(finding.rule for finding in gone if finding.status == status)
        if rules:
            each = ", ".join(f"{rule} {number}" for rule, number in rules.most_common())
            lines.append(f"{count(rules.total(), 'finding')} {status} since last week ({each}); --gone lists them")
    return _wrapped(lines)
