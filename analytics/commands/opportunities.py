"""`fallow opportunities`: what to do, what it saves, who acts, and how it adds up to the waste."""

from __future__ import annotations

import argparse
from dataclasses import replace

from analytics.decide.opportunities import Opportunities
from analytics.decide.readiness import waiting_rules
from analytics.inventory import simulated_text
from analytics.language.language import Language
from analytics.language.languages import CODES, language
from analytics.language.plain_text import moment, plain
from analytics.language.sentences import tr
from analytics.names import JOINER
from analytics.render.opportunities_json import COLUMNS, opportunities_json, opportunity_row
from analytics.render.report.text import for_text, section_text
from analytics.report.model import Whole
from analytics.report.weeks import parse_week
from analytics.scope import Scope, add_scope_arguments
from analytics.tables.data_age import data_age
from analytics.tables.facts import whose_prices
from analytics.tables.give_back import give_back
from analytics.tables.opportunities import opportunities, to_look_at, waste
from analytics.tables.readiness import waiting
from analytics.window import add_common_arguments, load_window_ledger, open_inputs, say_left_out
from fallow.clock import SystemClock, format_ms
from fallow.csv_text import csv_of
from fallow.errors import FallowError, UsageError
from fallow.output import say, show
from fallow.outside_text import json_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    add_common_arguments(parser)
    parser.add_argument("--week", metavar="WEEK", help="an ISO week such as 2026-W46, or `last`")
    add_scope_arguments(parser)
    parser.add_argument("--owner", metavar="NAME", help="only what this user, or `operators`, has to act on")
    parser.add_argument("--lang", choices=CODES, help="language of the text (or report.language; default en)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable")
    form.add_argument("--csv", action="store_true", help="one line per opportunity")


def run(args: argparse.Namespace) -> int:
    """Prints the opportunities."""
    inputs, now_ms = open_inputs(args), SystemClock().now_ms()
    speaks = language(args.lang or inputs.settings.text("report.language"), inputs.settings.text("report.timezone"))
    if args.week is not None:
        if args.since is not None or args.until is not None:
            raise UsageError("--week says the whole window", "leave out --since and --until")
        inputs = replace(inputs, back=None, window=parse_week(args.week, speaks.zone, now_ms).window)
    whole = Whole(inputs, load_window_ledger(inputs))
    scope = Scope.of(args)
    part = whole.part(scope)
    found = whole.opportunities(scope, part)
    if args.owner is not None:
        found = _of_owner(found, args.owner)
    simulated = simulated_text(
        whole.inventory.count_simulated(part.inside.stretches["gpu"].unique()), part.summary.totals.gpus
    )
    late = waiting_rules(whole.review.context)
    basis = whole.money.of(part.inside, whole.inventory).basis
    say_left_out(inputs.lake, whole.ledger)
    if args.json:
        window = {"since": format_ms(part.summary.since_ms), "until": format_ms(part.summary.until_ms)}
        content = {
            "window": window,
            "prices": sorted({each.price.origin for each in basis if each.price is not None}),
            **opportunities_json(found),
            "waiting": [each.as_json() for each in late],
        }
        show(json_text(content))
    elif args.csv:
        show(csv_of(COLUMNS, map(opportunity_row, found.listed)), end="")
    else:
        said = for_text(speaks)
        window_text = f"{moment(part.summary.since_ms)} to {moment(part.summary.until_ms)}"
        prices = tr("{label}: {value}", label=tr("prices"), value=whose_prices(basis, found.waste.currency))
        more, age = waiting(late), data_age(whole.ledger.counted_back_from_ms, now_ms)
        about = [window_text, *([said.translate(age)] if age else []), said.translate(prices)]
        head = ["\n".join(about), *([simulated] if simulated else []), *([said.translate(more)] if more else [])]
        show("\n\n".join([*head, *_blocks(found, said, is_all=args.owner is None)]))
    if simulated and (args.json or args.csv):
        say(simulated)
    return 0


def _of_owner(found: Opportunities, owner: str) -> Opportunities:
    """What one has to act on, alone or with others; raises FallowError for whoever has nothing to do."""
    own = tuple(each for each in found.listed if owner in each.owner.split(JOINER))
    if not own:
        owners = sorted({name for each in found.listed for name in each.owner.split(JOINER)})
        known = ", ".join(map(plain, owners)) or "nobody"
        raise FallowError(f"{plain(owner)} has nothing to act on in this window", f"who has: {known}")
    return replace(found, listed=own)


def _blocks(found: Opportunities, said: Language, *, is_all: bool) -> list[str]:
    """What goes back and how the waste adds up are about everybody's."""
    sections = (
        *((give_back(found.reclaimable),) if found.reclaimable is not None and is_all else ()),
        opportunities(found, None),
        to_look_at(found),
        *((waste(found),) if is_all else ()),
    )
    return [section_text(each, said) for each in sections if each is not None]
