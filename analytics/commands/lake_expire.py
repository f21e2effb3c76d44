"""`fallow lake expire`: delete rows that are older than the settings in `retention` allow."""

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
    add_lake_flags(parser)
    parser.add_argument(
        "--yes", action="store_true", help="delete; without this flag the command only lists what it would delete"
    )


def run(args: argparse.Namespace) -> int:
    """Print what is deleted of each table; return 1 if days remain because the lake lacks their ledger, else 0."""
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
        lines.append(
            "everything is kept for ever; to change this, set for example retention.gpu to 90d (`fallow settings"
            " retention`)"
        )
    elif not planned.expiries:
        lines.append("no rows are older than the retention settings allow")
    if planned.held_back:
        days = sorted(planned.held_back)
        lines.append(
            f"{len(days)} days from {days[0]} to {days[-1]} remain: the lake has no current ledger of these days; "
            "run `fallow ledger`, then this command again"
        )
    if planned.expiries and not done:
        lines.append("nothing is deleted yet: --yes deletes")
    return "\n".join(lines)


def _sentence(each: Expiry, retention: Retention, *, done: bool) -> str:
    days = sorted(each.files)
    verb = "were deleted" if done else "would be deleted"
    return (
        f"{each.table}: {each.count} files, {each.rows} rows, {format_bytes(each.bytes)} of {days[0]} to {days[-1]}"
        f" {verb} (kept for {format_duration(retention.kept_ms[each.table])}); then {LOST[each.table]}"
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
