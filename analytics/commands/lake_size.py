"""`fallow lake size`: files, rows and bytes of the lake, and what a month adds."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from fallow.clock import SystemClock
from fallow.lake_verbs.flags import add_lake_flags, lake_of
from fallow.output import show
from fallow.outside_text import visible
from fallow.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.lake_care.size import Size, StoredAmount

_BY = {"table": "tables", "host": "hosts", "day": "days"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_lake_flags(parser)
    parser.add_argument("--by", choices=tuple(_BY), default="table", help="what each line is of (default: table)")
    parser.add_argument(
        "--no-rows", action="store_true", help="leave the rows out: no file is opened, the lake is only listed"
    )


def run(args: argparse.Namespace) -> int:
    """Prints a line per table, host or day, and the whole."""
    from analytics.lake_care.size import size_of
    from analytics.progress import bar

    lake = lake_of(args).require_known()
    with bar("tables") as progress:
        size = size_of(lake, SystemClock().now_ms(), count_rows=not args.no_rows, progress=progress)
    show(json.dumps(_as_json(size), indent=2) if args.json else _text(size, args.by))
    return 0


def _as_json(size: Size) -> dict[str, object]:
    amounts = {name: {key: asdict(each) for key, each in sorted(getattr(size, name).items())} for name in _BY.values()}
    return amounts | {"whole": asdict(size.whole), "month_bytes": size.month_bytes, "month_rows": size.month_rows}


def _text(size: Size, by: str) -> str:
    amounts: Mapping[str, StoredAmount] = getattr(size, _BY[by])
    lines = [_row(by, "files", "rows", "bytes", "to remove")]
    lines += [_line(name or "(all hosts)", each) for name, each in sorted(amounts.items())]
    lines.append(_line("in all", size.whole))
    if size.month_bytes is not None:
        rows = "" if size.month_rows is None else f", {size.month_rows:,.0f} rows"
        lines.append(
            f"a month adds {format_bytes(size.month_bytes)}{rows} at the pace of the last seven days that are over"
        )
    if size.whole.removable_files:
        lines.append(f"compaction would remove {size.whole.removable_files} files")
    return "\n".join(lines)


def _line(name: str, each: StoredAmount) -> str:
    rows = "" if each.rows is None else f"{each.rows:,}"
    return _row(visible(name), f"{each.files:,}", rows, format_bytes(each.bytes), f"{each.removable_files:,}")


def _row(name: str, *cells: str) -> str:
    return f"{name:<20}" + "".join(f"{cell:>16}" for cell in cells)
