"""What every analytics command starts from: its common flags, the settings, the lake, the window and the ledger in it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace

import polars as pl

from analytics.inventory import load_inventory
from analytics.language.languages import time_zone
from analytics.ledger.build import Ledger, load_ledger, load_recent, newest_kept_ms, recent
from analytics.ledger.sampled import IdleFloors, idle_floors, with_unconfirmed
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import Summary, clip_ledger, data_end_ms, stopped_gpus, summarise
from analytics.ledger.unused_files import left_out_note
from analytics.progress import bar
from fallow import config
from fallow.clock import DAY_MS, WEEK_MS, AskedWindow, SystemClock, Window, format_ms
from fallow.errors import EmptyLakeError
from fallow.lake import Lake
from fallow.output import say


@dataclass(frozen=True)
class Inputs:
    """A lake, a window and the settings in force.

    A window that counts back from the end of the data is in `back`: what it is, `WindowLedger.window` says, for that end is
    known once the ledger is read. Until then `window` is all that the lake has.
    """

    lake: Lake
    window: Window
    settings: config.Config
    back: AskedWindow | None = None

    @property
    def ledger_settings(self) -> LedgerSettings:
        """The ledger's part of the settings."""
        return LedgerSettings.from_config(self.settings)


HISTORY_MS = 5 * WEEK_MS
"""How long before a window findings look back: those of the week before rest on 28 days of their own and a week to test against."""

REPORT_HISTORY_MS = 16 * WEEK_MS
"""How long before a window a report looks back: its trend has 13 weeks before, and which GPUs there were is known from the four weeks before the end of each."""


@dataclass(frozen=True)
class WindowLedger:
    """The ledger of the window and its history, the part of it inside the window, and that part in numbers.

    `window` is what was asked for, spans such as `7d` counted back from `counted_back_from_ms`, the end of the lake's newest row (None: nothing was counted back).
    `end_ms` is the end that was asked for, as far as it has passed; None is that of what was seen. `floors` are what idle
    cards draw, as the window tells; None where nothing was sampled by points, so that nobody need know.
    """

    whole: Ledger
    inside: Ledger
    summary: Summary
    end_ms: int | None = None
    floors: IdleFloors | None = None
    window: Window = field(default_factory=Window)
    counted_back_from_ms: int | None = None


def add_common_arguments(parser: argparse.ArgumentParser, *, since: str = "all") -> None:
    """Flags that every command over a lake has; `since` is what it takes without the flag."""
    parser.add_argument("--lake", metavar="DIR", help="the lake (or FALLOW_LAKE_PATH, or lake.path in the config file)")
    parser.add_argument(
        "--since",
        metavar="TIME",
        help=f"start: 2026-11-20, 2026-W47, RFC 3339, or 7d: so long before the end of the data (default: {since})",
    )
    parser.add_argument("--until", metavar="TIME", help="end, a day or week inclusive (default: all)")
    parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")


def open_inputs(args: argparse.Namespace) -> Inputs:
    """The lake, window and settings that the flags name; raises UsageError and its kinds."""
    settings = config.load({"lake.path": args.lake}, args.config)
    lake = Lake.at(settings.require("lake.path", "--lake"))
    zone = time_zone(getattr(args, "timezone", None) or settings.text("report.timezone"))
    asked, now_ms = AskedWindow(args.since, args.until, zone), SystemClock().now_ms()
    window = asked.before(now_ms)  # what is no window is said at once
    return Inputs(lake, Window(), settings, asked) if asked.counts_back else Inputs(lake, window, settings)


def load_whole(inputs: Inputs) -> Ledger:
    """The ledger of all that the lake has; raises LakeError and its kinds."""
    with bar("ledger") as progress:
        workers = inputs.settings.integer("ledger.workers")
        return load_ledger(inputs.lake, inputs.ledger_settings, progress=progress, workers=workers)


def history_start_ms(window: Window, history_ms: int = HISTORY_MS) -> int | None:
    """From when on a window's history counts: so long before it, or as long as it is; None where it has no start.

    Nothing is older than the epoch.
    """
    if window.since_ms is None:
        return None
    length_ms = 0 if window.until_ms is None else window.until_ms - window.since_ms
    return max(0, window.since_ms - max(history_ms, length_ms))


def _load(inputs: Inputs, window: Window, history_ms: int) -> Ledger:
    """The ledger of the window and its history; read day by day where it is kept as it is, else all of the lake's."""
    first_ms = history_start_ms(window, history_ms)
    if first_ms is None:
        return load_whole(inputs)
    workers = inputs.settings.integer("ledger.workers")
    with bar("ledger") as progress:
        found = load_recent(inputs.lake, inputs.ledger_settings, window, first_ms, workers=workers, progress=progress)
    return found or recent(load_whole(inputs), first_ms)


def _load_back(inputs: Inputs, asked: AskedWindow, history_ms: int, now_ms: int) -> Ledger:
    """The same of a window that counts back from the end of the data, which the ledger alone tells."""
    newest_ms = newest_kept_ms(inputs.lake)
    if newest_ms is None:
        return load_whole(inputs)
    # a day more than the window can need: rows may end on any moment of the newest day, and clocks may be put back
    least = replace(asked.before(min(newest_ms, now_ms) - DAY_MS), until_ms=None)
    found = _load(inputs, least, history_ms)
    window = asked.before(data_end_ms(found.host_ends, now_ms)) if found.host_ends else least
    is_enough = least.since_ms is None or (window.since_ms or 0) >= least.since_ms
    return found if is_enough else load_whole(inputs)


def load_window_ledger(
    inputs: Inputs,
    *,
    or_empty: bool = False,
    whole: Ledger | None = None,
    history_ms: int = HISTORY_MS,
    now_ms: int | None = None,
) -> WindowLedger:
    """The ledger of the window with `history_ms` before it, cut from the whole one where somebody has it already.

    `now_ms` is the wall clock's time, the machine's own by default.

    Raises EmptyLakeError where the lake has no rows at all, and unless `or_empty` none in the window.
    """
    asked, now_ms = inputs.back, SystemClock().now_ms() if now_ms is None else now_ms
    if whole is None:
        whole = (
            _load(inputs, inputs.window, history_ms) if asked is None else _load_back(inputs, asked, history_ms, now_ms)
        )
    if whole.lifetimes.is_empty() and not whole.host_ends:
        note = left_out_note(inputs.lake, whole.rollups.quality())
        raise EmptyLakeError(
            f"the gpu files of the lake at {inputs.lake.root} hold no rows",
            note or "start `fallow agent run` or `fallow follow`, or bring history in with `fallow import`",
        )
    newest_ms = data_end_ms(whole.host_ends, now_ms)
    window = inputs.window if asked is None else asked.before(newest_ms)
    first_ms = None if asked is None else history_start_ms(window, history_ms)
    whole = whole if first_ms is None else recent(whole, first_ms)
    inside = clip_ledger(whole, window)
    if inside.stretches.is_empty() and not or_empty:
        until_ms = max(whole.host_ends.values())
        raise EmptyLakeError(
            f"the lake at {inputs.lake.root} holds nothing between {_end(window.since_ms, 'its beginning')} "
            f"and {_end(window.until_ms, 'its end')}",
            f"it has rows from {format_ms(whole.first_ms)} to {format_ms(until_ms)}: "
            "choose a window that has some of them",
        )
    inside, floors = confirmed(inputs, inside)
    passed_ms = max(*whole.host_ends.values(), now_ms)
    end_ms = None if window.until_ms is None else min(window.until_ms, passed_ms)
    summary = _summary(inside, window, end_ms)
    return WindowLedger(whole, inside, summary, end_ms, floors, window, None if asked is None else newest_ms)


def say_left_out(lake: Lake, ledger: WindowLedger | None = None) -> None:
    """Says on standard error which files of the lake the figures, the ledger's among them, are made without."""
    if note := left_out_note(lake, None if ledger is None else ledger.inside.rollups.quality()):
        say(note)


def confirmed(inputs: Inputs, inside: Ledger) -> tuple[Ledger, IdleFloors | None]:
    """The ledger inside the window with `unconfirmed_ms`, by what the fleet's idle cards draw in it."""
    rows = inside.stretches
    if not (rows["sampled_ms"] > 0).any():
        return replace(inside, stretches=rows.with_columns(unconfirmed_ms=pl.lit(0, pl.Int64))), None
    inventory = inside.inventory or load_inventory(inputs.lake)
    floors = idle_floors(rows, inventory, inputs.ledger_settings.idle_after_ms)
    return replace(inside, stretches=with_unconfirmed(rows, floors, inventory)), floors


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
