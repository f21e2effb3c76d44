"""`fallow lake expire`: deletes what is older than the settings of the section `retention` say."""

from __future__ import annotations

import argparse
import json

from analytics.lake_care.expire import LOST, Expiry, ExpiryPlan, Retention, carry_out, plan
from analytics.ledger.settings import LedgerSettings
from analytics.progress import bar
from fallow.clock import SystemClock, format_duration
from fallow.lake_verbs import add_lake_flags, lake_of, settings
from fallow.output import show
from fallow.units import format_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_lake_flags(parser)
    parser.add_argument("--yes", action="store_true", help="delete; without, it only says what would go")


def run(args: argparse.Namespace) -> int:
    """Prints what goes of each table; 1 where days stay because the lake does not keep their ledger."""
    config = settings(args)
    lake, retention = lake_of(args).require_known(), Retention.from_config(config)
    now_ms = SystemClock().now_ms()
    with bar("tables") as progress:
        planned = plan(lake, retention, LedgerSettings.from_config(config), now_ms, progress)
    if args.yes:
        with bar("days") as progress:
            carry_out(lake, planned, now_ms, progress)
    show(
        json.dumps(_as_json(planned, done=args.yes), indent=2)
        if args.json
        else _text(planned, retention, done=args.yes)
    )
    return int(bool(planned.held_back))


def _text(planned: ExpiryPlan, retention: Retention, *, done: bool) -> str:
    lines = [_sentence(each, retention, done=done) for each in planned.expiries]
    if not retention.kept_ms:
        lines.append("everything is kept for ever: set retention.gpu, for one, to 90d (docs/configuration.md)")
    elif not planned.expiries:
        lines.append("nothing is older than it is kept")
    if planned.held_back:
        days = sorted(planned.held_back)
        lines.append(
            f"{len(days)} days from {days[0]} to {days[-1]} stay: the lake does not keep their ledger as it is now; "
            "run `fallow lake compact --derived`, then this again"
        )
    if planned.expiries and not done:
        lines.append("nothing is deleted yet: run it with --yes")
    return "\n".join(lines)


def _sentence(each: Expiry, retention: Retention, *, done: bool) -> str:
    days = sorted(each.files)
    verb = "went" if done else "would go"
    return (
        f"{each.table}: {each.count} files, {each.rows} rows, {format_bytes(each.bytes)} of {days[0]} to {days[-1]} {verb} "
        f"(kept for {format_duration(retention.kept_ms[each.table])}); then {LOST[each.table]}"
    )


def _as_json(planned: ExpiryPlan, *, done: bool) -> dict[str, object]:
    tables = [
        {
            "table": each.table,
            "files": each.count,
            "rows": each.rows,
            "bytes": each.bytes,
            "hosts": each.hosts,
            "first_day": min(each.files),
            "last_day": max(each.files),
        }
        for each in planned.expiries
    ]
    return {"done": done, "tables": tables, "held_back": sorted(planned.held_back)}
