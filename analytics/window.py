"""What every analytics command starts from: its common flags, the settings, the lake, the window and the ledger in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analytics.ledger.build import Ledger, load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import Summary, clip_ledger, stopped_gpus, summarise
from analytics.progress import bar
from fallow import config
from fallow.clock import SystemClock, Window, format_ms, parse_window
from fallow.errors import EmptyLakeError
from fallow.lake import Lake

if TYPE_CHECKING:
    import argparse


@dataclass(frozen=True)
class Inputs:
    """A lake, a window and the settings in force."""

    lake: Lake
    window: Window
    settings: config.Config

    @property
    def ledger_settings(self) -> LedgerSettings:
        """The ledger's part of the settings."""
        return LedgerSettings.from_config(self.settings)


@dataclass(frozen=True)
class WindowLedger:
    """The whole ledger, the part of it inside the window, and that part in numbers.

    `end_ms` is the end that was asked for, as far as it has passed; None is that of what was seen.
    """

    whole: Ledger
    inside: Ledger
    summary: Summary
    end_ms: int | None = None


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags that every command over a lake has."""
    parser.add_argument("--lake", metavar="DIR", help="the lake (or FALLOW_LAKE_PATH, or lake.path in the config file)")
    parser.add_argument("--since", metavar="TIME", help="start: 2026-11-20, 2026-W47, 7d or RFC 3339 (default: all)")
    parser.add_argument("--until", metavar="TIME", help="end, a day or week inclusive (default: all)")
    parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")


def open_inputs(args: argparse.Namespace) -> Inputs:
    """The lake, window and settings that the flags name; raises UsageError and its kinds."""
    settings = config.load({"lake.path": args.lake}, args.config)
    lake = Lake.at(settings.require("lake.path", "--lake"))
    return Inputs(lake, parse_window(args.since, args.until), settings)


def load_whole(inputs: Inputs) -> Ledger:
    """The ledger of all that the lake has; raises LakeError and its kinds."""
    with bar("ledger") as progress:
        workers = inputs.settings.integer("ledger.workers")
        return load_ledger(inputs.lake, inputs.ledger_settings, progress=progress, workers=workers)


def load_window_ledger(inputs: Inputs, *, or_empty: bool = False, whole: Ledger | None = None) -> WindowLedger:
    """The ledger of the window, cut from the whole one where somebody has it already.

    Raises EmptyLakeError where the lake has no rows at all, and unless `or_empty` none in the window.
    """
    whole = load_whole(inputs) if whole is None else whole
    if whole.stretches.is_empty():
        raise EmptyLakeError(
            f"the gpu files of the lake at {inputs.lake.root} hold no rows",
            "start `fallow agent run --lake ...`, or bring history in with `fallow import`",
        )
    inside = clip_ledger(whole, inputs.window)
    if inside.stretches.is_empty() and not or_empty:
        everything = summarise(whole)
        raise EmptyLakeError(
            f"the lake at {inputs.lake.root} holds nothing between {_end(inputs.window.since_ms, 'its beginning')} "
            f"and {_end(inputs.window.until_ms, 'its end')}",
            f"it has rows from {format_ms(everything.since_ms)} to {format_ms(everything.until_ms)}: "
            "choose a window that has some of them",
        )
    end_ms = _end_ms(whole, inputs.window)
    return WindowLedger(whole, inside, _summary(inside, inputs.window, end_ms), end_ms)


def _end_ms(whole: Ledger, window: Window) -> int | None:
    if window.until_ms is None:
        return None
    return min(window.until_ms, max(int(whole.stretches["end"].max()), SystemClock().now_ms()))  # type: ignore[arg-type]


def _summary(inside: Ledger, window: Window, end_ms: int | None) -> Summary:
    """That of a window in which nothing was seen is about the window itself; who is silent is so at the end that was asked for."""
    found = summarise(inside)
    if end_ms is not None:
        found = replace(found, stopped_gpus=stopped_gpus(inside.stretches, end_ms))
    if not inside.stretches.is_empty():
        return found
    return replace(found, since_ms=window.since_ms or 0, until_ms=window.until_ms or 0)


def _end(moment_ms: int | None, otherwise: str) -> str:
    return otherwise if moment_ms is None else format_ms(moment_ms)
