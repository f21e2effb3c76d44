"""The read commands on a terminal of 80 columns: nothing is broken by its edge, and no number is lost to it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from fallow import schema
from tests.conftest import REPOSITORY, clean_environment
from tests.lakes import made_lake
from tests.ledger.rows import allocation, device, fill, processes, samples, write
from tests.report.conftest import BUSY, FREE, HELD, HOUR, LOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.conftest import RunFallow
    from tests.report.conftest import Outcome

COMMANDS = (
    "ledger --all",
    "ledger --all --by pool",
    "ledger --all --by user",
    "prices --all",
    "allocations list --all",
)
NUMBER = re.compile(r"\d[\d,]*\.\d+")
AFTER_ANOTHER = (
    "import json, sys; from fallow.cli import main; "
    "[(main(each), print('\\f', end='')) for each in json.loads(sys.argv[1])]"
)


def on_terminal(columns: int, lake: Lake) -> dict[str, str]:
    """What each command prints on a terminal of that width, in one process."""
    screen, child = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    commands = json.dumps([[*each.split(), "--lake", lake.root] for each in COMMANDS])
    line = [sys.executable, "-W", "error", "-c", AFTER_ANOTHER, commands]
    settings = clean_environment({}) | {"TERM": "xterm"}
    with subprocess.Popen(
        line, stdout=child, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=REPOSITORY, env=settings
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
    return dict(zip(COMMANDS, written.decode().replace("\r\n", "\n").split("\f"), strict=False))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Every state, long names everywhere, allocations of two years, and models whose prices are from far away."""
    lake = made_lake(tmp_path_factory.mktemp("wide") / "lake")
    host = "a-host-with-a-long-name-01"
    states = {"GPU-0": HELD, "GPU-1": BUSY, "GPU-2": FREE, "GPU-3": LOST, "GPU-4": FREE}
    rows = [row for gpu, values in states.items() for row in samples(gpu, 0, 300 * HOUR, **values)]
    rows += samples("GPU-0", 310 * HOUR, 311 * HOUR, **HELD)  # and nobody looked before
    models = [device(gpu, pool="the-pool-for-everybody" if gpu < "GPU-2" else "another") for gpu in states]
    lists = processes("GPU-0", *range(0, 300 * HOUR, 3600), every_s=3600, user="somebody-with-a-name")
    fill(lake, rows, lists, devices=models, host=host)
    state = {"state": "CANCELLED", "scheduler": "slurm"}
    allocated = [
        allocation("GPU-0", 0, 2 * HOUR, "somebody-with-a-name", "allocation-of-the-first-1") | state,
        allocation("GPU-4", HOUR, None, "x", "1"),
        allocation("GPU-0", 90 * 24 * HOUR, 91 * 24 * HOUR, "ann", "next-year"),
    ]
    write(lake, schema.ALLOCATION, allocated, host)
    return lake


@pytest.fixture(scope="module")
def narrow(wide: Lake) -> dict[str, str]:
    return on_terminal(80, wide)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_narrow_terminal(wide: Lake, narrow: dict[str, str], command: str, run_fallow: RunFallow) -> None:
    assert max(map(len, narrow[command].splitlines())) <= 80
    piped = run_fallow(*command.split(), "--lake", wide.root).stdout
    # of a table that is too wide, columns stand below
    assert sorted(NUMBER.findall(narrow[command])) == sorted(NUMBER.findall(piped))
    assert "\x1b" not in narrow[command], "what is read is plain on any terminal"


def test_columns_that_have_no_room_stand_below_behind_the_names(narrow: dict[str, str]) -> None:
    lines = narrow["ledger --all --by pool"].splitlines()
    heads = [line.split() for line in lines if line.startswith("  pool  ")]
    assert heads[0][:2] == ["pool", "GPU-hours"]
    assert "efficiency" in heads[1]
    assert len([line for line in lines if line.startswith("  another ")]) == len(heads) == 2


def test_allocations_of_two_years_show_their_days(narrow: dict[str, str]) -> None:
    lines = narrow["allocations list --all"].splitlines()
    assert [line for line in lines if " next-year " in line and " 2027-02-18 " in line]


@pytest.mark.long
def test_pipes_and_wide_terminals_get_the_whole(wide: Lake, run_fallow: RunFallow) -> None:
    shown = on_terminal(140, wide)
    for command in COMMANDS:
        piped = run_fallow(*command.split(), "--lake", wide.root, COLUMNS="80").stdout
        assert max(map(len, piped.splitlines())) > 80
        assert shown[command] == piped


def test_without_a_price_nothing_is_said_of_money(lake: Lake, report: Callable[..., Outcome]) -> None:
    fill(lake, samples("GPU-0", 0, 2 * HOUR, **HELD), devices=[device("GPU-0", "A card that nobody sells")])
    for flags in ((), ("--by", "pool")):
        shown = report(lake, *flags, command="ledger").out
        assert "No price is known, so no cost is shown." in shown
        assert not re.search(r"(state|cost|paid) .*USD", shown)
