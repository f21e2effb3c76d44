"""The one command, run as a user runs it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import fallow
from fallow import cli
from fallow.cli import COMMANDS, Command
from fallow.errors import EmptyLakeError, MissingExtraError, UsageError
from fallow.lake_verbs.command import VERBS
from tests.conftest import REPOSITORY, clean_environment, run_python
from tests.in_process import run_in_process

if TYPE_CHECKING:
    from tests.conftest import RunFallow

HEAVY = ("pyarrow", "duckdb", "polars", "numpy", "dash", "plotly", "psutil", "pynvml", "rich", "sqlite3", "asyncio")


def test_without_arguments_it_shows_the_commands_and_fails_as_wrong_use(run_fallow: RunFallow) -> None:
    done = run_fallow()
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout == run_fallow("--help").stdout
    for command in COMMANDS:
        assert f"  {command.name} " in done.stdout
        assert command.summary in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("flag", ["-h", "--help", "help"])
def test_help_is_done(flag: str) -> None:
    assert run_in_process(flag).returncode == 0


@pytest.mark.parametrize("command", ["ledger", "plan queue", "lake compact"])
def test_help_of_a_command_is_what_its_flag_shows(command: str) -> None:
    done = run_in_process("help", *command.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run_in_process(*command.split(), "--help").stdout
    assert done.stdout.startswith(f"usage: fallow {command} ")


@pytest.mark.parametrize(
    ("group", "verb"),
    [
        ("agent", "run"), ("import", "nvidia-smi"), ("follow", "otlp"), ("allocations", "import"), ("allocations import", "slurm"),
        ("lake", "compact"), ("plan", "forecast"), ("annotations", "add"), ("pseudonym", "new-key"),
    ],
)  # fmt: skip
def test_a_group_alone_lists_its_verbs_as_wrong_use(group: str, verb: str) -> None:
    done = run_in_process(*group.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert f"usage: fallow {group} " in done.stderr
    [line] = [each for each in done.stderr.splitlines() if each.split()[:1] == [verb]]
    assert len(line.split()) > 3
    assert "required" not in done.stderr


@pytest.mark.parametrize("flag", ["-V", "--version", "version"])
def test_the_version(flag: str) -> None:
    done = run_in_process(flag)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"fallow {fallow.__version__}\n", "")


def test_an_unknown_command_names_the_nearest(run_fallow: RunFallow) -> None:
    done = run_fallow("ledgr")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fallow: there is no command 'ledgr'; did you mean 'ledger'?\n"
    assert run_fallow("zzz").stderr == "fallow: there is no command 'zzz'; `fallow --help` lists the commands\n"


def test_an_empty_name_is_no_command(run_fallow: RunFallow) -> None:
    assert run_fallow("").returncode == 2


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_shows_an_example(command: Command) -> None:
    done = run_in_process(command.name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: fallow {command.name}" in done.stdout
    assert f"example: {command.example}" in done.stdout
    assert command.example.startswith(f"fallow {command.name}")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_refuses_a_flag_that_it_lacks(command: Command) -> None:
    done = run_in_process(command.name, "--no-such-flag")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_verb_of_a_lake_shows_an_example(verb: Command) -> None:
    done = run_in_process("lake", verb.name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"example: {verb.example}" in done.stdout
    assert verb.example.startswith(f"fallow lake {verb.name} --lake ")
    assert verb.summary in " ".join(run_in_process("lake", "--help").stdout.split())


def test_a_verb_whose_packages_are_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("analytics.progress", "analytics.commands.lake_check"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "rich.progress", None)  # as in an environment without it
    done = run_in_process("lake", "check", "--lake", "/srv/lake")
    assert (done.returncode, done.stdout) == (1, "")
    assert "`fallow lake check` needs the package rich, which the base install leaves out" in done.stderr
    assert "pip install 'fallow[analytics]'" in done.stderr


def test_a_flag_cannot_be_shortened(run_fallow: RunFallow) -> None:
    done = run_fallow("schema", "--jso")
    assert done.returncode == 2
    assert "unrecognized arguments: --jso" in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [(EmptyLakeError("the lake is empty", "fill it"), 1), (UsageError("that is wrong", "write it right"), 2)],
)
def test_an_error_is_one_sentence_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    def fail(_arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_run", fail)
    assert cli.main([]) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"fallow: {error}\n")


def test_an_interrupt_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupt)
    assert cli.main([]) == 130


def test_a_missing_package_names_the_extra() -> None:
    command = Command("ledger", "", "", "a_module_that_nobody_has.at_all", "analytics")
    with pytest.raises(MissingExtraError) as error:
        cli.load(command)
    assert str(error.value) == (
        "`fallow ledger` needs the package a_module_that_nobody_has, which the base install leaves out; "
        "install it with: pip install 'fallow[analytics]'"
    )


@pytest.mark.parametrize("module", ["fallow.no_such_module", "agent.no_such_module"])
def test_a_package_of_fallow_that_is_missing_is_no_missing_extra(module: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        cli.load(Command("x", "", "", module, "analytics"))
    with pytest.raises(ModuleNotFoundError):
        cli.load(Command("x", "", "", "a_module_that_nobody_has"))


@pytest.mark.parametrize("arguments", [["schema"], ["--version"], ["schema", "--help"]])
def test_a_reader_that_goes_away_is_no_failure(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # gone before the first byte
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "fallow", *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
            cwd=REPOSITORY,
            env=clean_environment(),
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("arguments", [["schema"], ["--version"], ["schema", "--json"], ["doctor", "--json"]])
def test_output_that_cannot_be_written_is_one_sentence(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123  # a device that is always full
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "fallow", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60, cwd=REPOSITORY, env=clean_environment(),
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "fallow: cannot write the output: No space left on device\n")


def test_other_trouble_of_the_system_is_not_taken_for_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_arguments: list[str]) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "/srv/report.md")

    monkeypatch.setattr(cli, "_run", fail)
    with pytest.raises(OSError, match=r"/srv/report\.md"):
        cli.main([])


def test_the_command_itself_loads_nothing_heavy() -> None:
    code = (
        "import argparse, json, sys, fallow.cli, fallow.schema.command, fallow.lake, fallow.config, fallow.lake_verbs.command;"
        "fallow.lake_verbs.command.add_arguments(argparse.ArgumentParser()); print(json.dumps(list(sys.modules)))"
    )
    done = run_python("-c", code)
    assert done.stderr == ""
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert loaded.isdisjoint(HEAVY), loaded & set(HEAVY)
