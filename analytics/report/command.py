"""`fallow report`: writes the waste report in one of several formats."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.inputs import add_common_arguments, load_window_ledger, open_inputs
from analytics.report.formats import FORMATS, Format
from analytics.report.model import build_report
from fallow.errors import FallowError

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    add_common_arguments(parser)
    names = [each.name for each in FORMATS]
    parser.add_argument(
        "--format", choices=names, default=names[0], help=f"one of {', '.join(names)} (default {names[0]})"
    )
    parser.add_argument("--out", metavar="FILE", help="where to write it (default: standard output)")


def run(args: argparse.Namespace) -> int:
    """Writes the report."""
    inputs = open_inputs(args)
    report = build_report(inputs, load_window_ledger(inputs))
    text = format_named(args.format).render(report)
    if args.out is None:
        sys.stdout.write(text)
    else:
        write_whole(Path(args.out), text)
    return 0


def format_named(name: str) -> Format:
    """The format of that name."""
    return next(each for each in FORMATS if each.name == name)


def write_whole(target: Path, text: str) -> None:
    """Writes the file in one step, so that a fault leaves the old one; raises FallowError.

    What is there and is no file, such as /dev/stdout or a pipe, is written to and never replaced.
    """
    partial = target.parent / f".fallow-report.{os.getpid()}.{os.urandom(4).hex()}.part"
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise FallowError(
            f"cannot write {target}: {error.strerror}", "check that the folder exists and is writable"
        ) from error
