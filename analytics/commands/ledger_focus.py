"""`fallow ledger --focus`: the cost rows of a window as a file for tools that read bills."""

from __future__ import annotations

import argparse
from pathlib import Path

from analytics.commands.table_verb import VerbInputs
from analytics.commands.written_file import write_whole
from analytics.language.plain_text import count, plain
from analytics.money.focus import FOCUS_VERSION, Biller, focus_rows
from analytics.render.table_files import as_csv, as_parquet
from fallow.clock import HOUR_MS
from fallow.lake_marker import read_marker
from fallow.output import say

_ENDINGS = (".csv", ".parquet")


def focus_file(text: str) -> Path:
    """A file whose ending says which form it is in."""
    if (found := Path(text)).suffix not in _ENDINGS:
        raise argparse.ArgumentTypeError(
            f"'{text}' ends in neither {' nor '.join(_ENDINGS)}, which is the form of the file"
        )
    return found


def write_focus(target: Path, given: VerbInputs) -> None:
    """Writes the file in one step and says what it holds; raises FallowError."""
    inputs, ledger, money, inventory = given.whole.inputs, given.part, given.report.money, given.whole.inventory
    marker = read_marker(inputs.lake.store)
    account = inputs.lake.root if marker is None else marker.id
    biller = Biller(inputs.settings.text("money.provider"), account, inputs.lake.root)
    rows = focus_rows(money, ledger.inside.stretches, inventory, biller, ledger.window)
    content = as_csv(rows) if target.suffix == ".csv" else as_parquet(rows, {"focus_version": FOCUS_VERSION})
    write_whole(target, content)
    say(f"{plain(str(target))}: {count(rows.height, 'cost row')} in FOCUS {FOCUS_VERSION}")
    unpriced = money.accounts.total.unpriced_ms
    if unpriced:
        say(
            f"{unpriced / HOUR_MS:,.1f} GPU-hours have no price: their costs are empty, which FOCUS does not allow; see `fallow prices --lake`"
        )
