"""The read commands on a terminal of 80 columns: nothing is broken by its edge, and no number is lost to it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from fallow import schema
from fallow.lake import Lake
from tests.conftest import REPOSITORY, clean_environment
from tests.lakes import made_lake
from tests.ledger.rows import claim, device, fill, processes, samples, write
from tests.report.conftest import BUSY, FREE, HELD, HOUR, LOST

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunFallow

COMMANDS = (("ledger",), ("ledger", "--by", "pool"), ("ledger", "--by", "holder"), ("prices",), ("allocations", "list"))
NUMBER = re.compile(r"\d[\d,]*\.\d+")


def on_terminal(columns: int, *arguments: str, **environment: str) -> str:
    """What the command prints on a terminal of that width."""
    screen, child = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-W", "error", "-m", "fallow", *arguments]
    settings = clean_environment(environment) | {"TERM": "xterm"}
    with subprocess.Popen(
        command, stdout=child, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=REPOSITORY, env=settings
    ) as process:
        os.close(child)
        written = b""
        try:
            while piece := os.read(screen, 65536):
                written += piece
        except OSError:  # how a terminal that nobody writes to any more ends
            pass
        finally:
            os.close(screen)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"")
    return written.decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Every state, long names everywhere, claims that have a state, and models whose prices are from far away."""
    lake = made_lake(tmp_path_factory.mktemp("wide") / "lake")
    host = "a-host-with-a-long-name-01"
    states = {"GPU-0": HELD, "GPU-1": BUSY, "GPU-2": FREE, "GPU-3": LOST, "GPU-4": FREE}
    rows = [row for gpu, values in states.items() for row in samples(gpu, 0, 300 * HOUR, **values)]
    rows += samples("GPU-0", 310 * HOUR, 311 * HOUR, **HELD)  # and nobody looked before
    models = [device(gpu, pool="the-pool-for-everybody" if gpu < "GPU-2" else "another") for gpu in states]
    lists = processes("GPU-0", *range(0, 300 * HOUR, 3600), every_s=3600, user="somebody-with-a-name")
    fill(lake, rows, lists, devices=models, host=host)
    state = {"state": "CANCELLED", "scheduler": "slurm"}
    claimed = [
        claim("GPU-0", 0, 2 * HOUR, "somebody-with-a-name", "claim-of-the-first-1") | state,
        claim("GPU-4", HOUR, None, "x", "1"),
    ]
    write(lake, schema.CLAIM, claimed, host)
    return lake


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_narrow_terminal(wide: Lake, command: tuple[str, ...], run_fallow: RunFallow) -> None:
    narrow = on_terminal(80, *command, "--lake", wide.root).splitlines()
    assert max(map(len, narrow)) <= 80
    piped = run_fallow(*command, "--lake", wide.root).stdout
    # of a table that is too wide, columns stand below
    assert sorted(NUMBER.findall("\n".join(narrow))) == sorted(NUMBER.findall(piped))


def test_columns_that_have_no_room_stand_below_behind_the_names(wide: Lake) -> None:
    text = on_terminal(80, "ledger", "--by", "pool", "--lake", wide.root)
    heads = [line.split() for line in text.splitlines() if line.startswith("  pool  ")]
    assert heads[0][:2] == ["pool", "GPU-hours"]
    assert "efficiency" in heads[1]
    assert len([line for line in text.splitlines() if line.startswith("  another ")]) == 2


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_pipes_and_wide_terminals_get_the_whole(wide: Lake, command: tuple[str, ...], run_fallow: RunFallow) -> None:
    piped = run_fallow(*command, "--lake", wide.root, COLUMNS="80").stdout
    assert max(map(len, piped.splitlines())) > 80
    assert on_terminal(140, *command, "--lake", wide.root) == piped


def test_claims_of_two_years_show_their_days(wide: Lake, tmp_path: Path) -> None:
    wide = Lake.at(str(shutil.copytree(wide.root, tmp_path / "lake")))
    write(wide, schema.CLAIM, [claim("GPU-0", 90 * 24 * HOUR, 91 * 24 * HOUR, "ann", "next-year")], "h9")
    lines = on_terminal(80, "allocations", "list", "--lake", wide.root).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if " next-year " in line and " 2027-02-18 " in line]


@pytest.mark.parametrize("settings", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["colour", "NO_COLOR", "dumb"])
def test_what_is_read_is_plain_on_any_terminal(wide: Lake, settings: dict[str, str]) -> None:
    assert "\x1b" not in on_terminal(80, "ledger", "--lake", wide.root, **settings)


def test_without_a_price_nothing_is_said_of_money(lake: Lake) -> None:
    fill(lake, samples("GPU-0", 0, 2 * HOUR, **HELD), devices=[device("GPU-0", "A card that nobody sells")])
    for command in (("ledger",), ("ledger", "--by", "pool")):
        shown = on_terminal(80, *command, "--lake", lake.root)
        assert "No price is known: nothing is said of money." in shown
        assert not re.search(r"(state|cost|paid) .*USD", shown)
        assert max(map(len, shown.splitlines())) <= 80
