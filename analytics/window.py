"""The start of every analytics command: common flags, settings, the lake, the window and the ledger in it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace

from analytics.inventory import Inventory, load_inventory
from analytics.language.languages import time_zone
from analytics.ledger.build import Ledger, load_ledger, load_recent, newest_kept_ms, recent
from analytics.ledger.sampled import IdleFloors, idle_floors, with_unconfirmed
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import Summary, clip_ledger, data_end_ms, stopped_gpus, summarise
from analytics.ledger.unused_files import left_out_note
from analytics.ledger.workers import Workers
from analytics.progress import bar
from fallow import config
from fallow.clock import DAY_MS, WEEK_MS, AskedWindow, SystemClock, Window, format_ms
from fallow.errors import EmptyLakeError
from fallow.lake import Lake
from fallow.output import say


@dataclass(frozen=True)
class Inputs:
    """A lake, a window and the settings in force.

    `back` holds a window that counts back from the end of the data. `WindowLedger.window` resolves it, because that end
    is known only once the ledger is read. Until then `window` is all that the lake has.
    """

    lake: Lake
    window: Window
    settings: config.Config
    back: AskedWindow | None = None

    @property
    def ledger_settings(self) -> LedgerSettings:
        """Return the ledger's part of the settings."""
        return LedgerSettings.from_config(self.settings)


HISTORY_MS = 5 * WEEK_MS
"""The time before a window that findings need.

Those of the week before rest on 28 days of their own and a week to test against.
"""

READ_MS = 10 * WEEK_MS
"""The time before a window for which the ledger is read.

Recommendations need up to five weeks before the window's end, and HISTORY_MS before those.
"""

REPORT_HISTORY_MS = 16 * WEEK_MS
"""The time before a window that a report needs.

Its trend has 13 weeks before, and the fleet of each is known from the four weeks before its end.
"""


@dataclass(frozen=True)
class WindowLedger:
    """The ledger of the window and its history, the part of it inside the window, and the numbers of that part."""

    whole: Ledger
    inside: Ledger
    summary: Summary
    end_ms: int | None = None
    """The requested end, or now if that is earlier; None means the end of the observations."""
    floors: IdleFloors | None = None
    """Draws of idle cards in the window; None without point samples, where they are not needed."""
    window: Window = field(default_factory=Window)
    """The requested window. Lengths such as `7d` are resolved."""
    counted_back_from_ms: int | None = None
    """The end of the lake's newest row, from which such a length counts back; None where nothing was counted back."""


def add_common_arguments(parser: argparse.ArgumentParser, *, since: str = "all") -> None:
    """Add the flags for lake, window and config file; `since` is the default of --since in its help."""
    parser.add_argument("--lake", metavar="DIR", help="location of the lake (or FALLOW_LAKE_PATH, or lake.path)")
    parser.add_argument(
        "--since",
        metavar="TIME",
        help=(
            f"start of the window: a date, a week such as 2026-W47, RFC 3339, or a length such as 7d (default: {since})"
        ),
    )
    parser.add_argument(
        "--until", metavar="TIME", help="end of the window; a date or week is included (default: end of the data)"
    )
    parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")
    parser.add_argument(
        "--executor",
        metavar="dask://HOST:PORT",
        help="Dask scheduler whose workers build the ledger (default: this machine; or FALLOW_LEDGER_EXECUTOR)",
    )


def open_inputs(args: argparse.Namespace) -> Inputs:
    """Return the lake, window and settings that the flags name. Raises UsageError and its kinds."""
    settings = config.load({"lake.path": args.lake, "ledger.executor": getattr(args, "executor", None)}, args.config)
    lake = Lake.at(settings.require("lake.path", "--lake"))
    zone = time_zone(getattr(args, "timezone", None) or settings.text("report.timezone"))
    asked, now_ms = AskedWindow(args.since, args.until, zone), SystemClock().now_ms()
    window = asked.before(now_ms)  # an invalid window is refused at once
    return Inputs(lake, Window(), settings, asked) if asked.counts_back else Inputs(lake, window, settings)


def load_whole(inputs: Inputs) -> Ledger:
    """Return the ledger of all data in the lake. Raises LakeError and its kinds."""
    with bar("ledger") as progress:
        workers = Workers.from_config(inputs.settings)
        return load_ledger(inputs.lake, inputs.ledger_settings, progress=progress, workers=workers)


def history_start_ms(window: Window, history_ms: int = HISTORY_MS) -> int | None:
    """Return the start of a window's history: `history_ms` before it, or its length if longer; None without a start.

    The history never begins before the epoch.
    """
    if window.since_ms is None:
        return None
    length_ms = 0 if window.until_ms is None else window.until_ms - window.since_ms
    return max(0, window.since_ms - max(history_ms, length_ms))


def _loaded_ledger(inputs: Inputs, window: Window, history_ms: int) -> Ledger:
    """Return the ledger of window and history; read by day where it is kept and current, else over the whole lake."""
    first_ms = history_start_ms(window, history_ms)
    if first_ms is None:
        return load_whole(inputs)
    workers = Workers.from_config(inputs.settings)
    with bar("ledger") as progress:
        found = load_recent(inputs.lake, inputs.ledger_settings, window, first_ms, workers=workers, progress=progress)
    return found or recent(load_whole(inputs), first_ms)


def _ledger_counted_back(inputs: Inputs, asked: AskedWindow, history_ms: int, now_ms: int) -> Ledger:
    """Return the same for a window that counts back from the end of the data, which only the ledger knows."""
    newest_ms = newest_kept_ms(inputs.lake)
    if newest_ms is None:
        return load_whole(inputs)
    # one day more than the window can need: rows may end at any moment of the newest day, and clocks may be put back
    least = replace(asked.before(min(newest_ms, now_ms) - DAY_MS), until_ms=None)
    found = _loaded_ledger(inputs, least, history_ms)
    window = asked.before(data_end_ms(found.host_ends, now_ms)) if found.host_ends else least
    is_enough = least.since_ms is None or (window.since_ms or 0) >= least.since_ms
    return found if is_enough else load_whole(inputs)


def load_window_ledger(
    inputs: Inputs,
    *,
    or_empty: bool = False,
    whole: Ledger | None = None,
    history_ms: int = READ_MS,
    now_ms: int | None = None,
) -> WindowLedger:
    """Return the ledger of the window with `history_ms` before it, cut from the whole ledger where the caller has one.

    `now_ms` is the wall clock's time, the machine's own by default.

    Raises EmptyLakeError where the lake has no rows at all, and unless `or_empty` where the window has none.
    """
    asked, now_ms = inputs.back, SystemClock().now_ms() if now_ms is None else now_ms
    if whole is None:
        whole = (
            _loaded_ledger(inputs, inputs.window, history_ms)
            if asked is None
            else _ledger_counted_back(inputs, asked, history_ms, now_ms)
        )
    if whole.lifetimes.is_empty() and not whole.host_ends:
        note = left_out_note(inputs.lake, whole.rollups.quality())
        raise EmptyLakeError(
            f"the gpu files of the lake at {inputs.lake.root} hold no rows",
            note or "start `fallow agent run` or `fallow follow`, or import history with `fallow import`",
        )
    newest_ms = data_end_ms(whole.host_ends, now_ms)
    window = inputs.window if asked is None else asked.before(newest_ms)
    first_ms = None if asked is None else history_start_ms(window, history_ms)
    whole = whole if first_ms is None else recent(whole, first_ms)
    inside = clip_ledger(whole, window)
    if inside.segments.is_empty() and not or_empty:
        until_ms = max(whole.host_ends.values())
        raise EmptyLakeError(
            f"the lake at {inputs.lake.root} holds nothing between {_end_text(window.since_ms, 'its beginning')} "
            f"and {_end_text(window.until_ms, 'its end')}",
            f"it has rows from {format_ms(whole.first_ms)} to {format_ms(until_ms)}: "
            "choose a window that has some of them",
        )
    inside, floors = confirmed(inputs, inside)
    passed_ms = max(*whole.host_ends.values(), now_ms)
    end_ms = None if window.until_ms is None else min(window.until_ms, passed_ms)
    summary = _summary(inside, window, end_ms)
    return WindowLedger(whole, inside, summary, end_ms, floors, window, None if asked is None else newest_ms)


def say_left_out(lake: Lake, ledger: WindowLedger | None = None) -> None:
    """Report on standard error the unusable files of the lake, which the figures and the ledger leave out."""
    if note := left_out_note(lake, None if ledger is None else ledger.inside.rollups.quality()):
        say(note)


def confirmed(inputs: Inputs, inside: Ledger) -> tuple[Ledger, IdleFloors | None]:
    """Return the window's ledger with evidence for sampled idle time, and the floors from the fleet's idle cards."""
    rows = inside.segments
    if not (rows["sampled_ms"] > 0).any():
        return replace(inside, segments=with_unconfirmed(rows, None, Inventory({}))), None
    inventory = inside.inventory or load_inventory(inputs.lake)
    floors = idle_floors(rows, inventory, inputs.ledger_settings.idle_after_ms)
    return replace(inside, segments=with_unconfirmed(rows, floors, inventory)), floors


def _summary(inside: Ledger, window: Window, end_ms: int | None) -> Summary:
    """Return the summary. A window without observations keeps its own ends; GPUs are silent as of the requested end."""
    found = summarise(inside)
    if end_ms is not None:
        found = replace(found, stopped_gpus=stopped_gpus(inside.segments, end_ms))
    if not inside.segments.is_empty():
        return found
    return replace(found, since_ms=window.since_ms or 0, until_ms=window.until_ms or 0)


def _end_text(moment_ms: int | None, otherwise: str) -> str:
    return otherwise if moment_ms is None else format_ms(moment_ms)
