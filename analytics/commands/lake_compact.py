"""`fallow lake compact`: merge the files of a day into one file for each table and host."""

from __future__ import annotations

import argparse
import json

from analytics.progress import bar
from fallow.clock import SystemClock, parse_duration_ms
from fallow.compaction import Compacted, LakeCompactor
from fallow.errors import LakeError
from fallow.lake_verbs import add_lake_flags, lake_of, settings
from fallow.output import show
from fallow.outside_text import visible
from fallow.units import format_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lake_flags(parser)
    parser.add_argument(
        "--older-than",
        metavar="TIME",
        default="1d",
        type=parse_duration_ms,
        help=(
            "only days that ended at least this long ago, and files without a change for this time or 3 h (default: 1d)"
        ),
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and change nothing")


def run(args: argparse.Namespace) -> int:
    """Merge files and print what was done; return 1 if a day of a host could not be merged, else 0."""
    lake, grace_ms = lake_of(args).require_known(), settings(args).integer("compaction.grace")
    with bar("days") as progress:
        done = LakeCompactor(lake, SystemClock().now_ms(), args.older_than, grace_ms, args.dry_run).run(progress)
    show(json.dumps(_as_json(done), indent=2) if args.json else _text(done, dry_run=args.dry_run))
    if done.refused:
        raise LakeError(f"hidden files remain: {done.refused}", "run the command with credentials that may delete")
    return int(bool(done.skipped))


def _text(done: Compacted, *, dry_run: bool) -> str:
    would = "would be " if dry_run else ""
    lines = [f"not merged: {visible(each)}" for each in done.skipped]
    after = "" if dry_run else f", {format_bytes(done.bytes_before)} -> {format_bytes(done.bytes_after)}"
    lines.append(f"{done.files_before} files {would}merged into {len(done.merged)}{after}")
    lines.append(f"{len(done.removed)} replaced files {would}removed")
    if done.kept:
        lines.append(f"{len(done.kept)} hidden files remain: `fallow lake check` says why")
    return "\n".join(lines)


def _as_json(done: Compacted) -> dict[str, object]:
    return {
        "merged": [{"file": key, "from_files": count} for key, count in done.merged],
        "files_before": done.files_before,
        "bytes_before": done.bytes_before,
        "bytes_after": done.bytes_after,
        "removed": [file.key for file in done.removed],
        "kept": [file.key for file in done.kept],
        "not_merged": done.skipped,
    }
