"""The one command, run as a user runs it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

import fallow
from analytics.commands.plan import VERBS as PLANS
from fallow import cli
from fallow.cli import COMMANDS, COMMANDS_BY_PERSON, REFERENCE, Command
from fallow.errors import EmptyLakeError, MissingExtraError, UsageError
from fallow.lake_verbs import VERBS
from tests.conftest import REPOSITORY, RunFallow, clean_environment, run_python
from tests.in_process import run_in_process

HEAVY = {"pyarrow", "duckdb", "polars", "numpy", "dash", "plotly", "psutil", "pynvml", "rich", "sqlite3", "asyncio"}
GROUPS = {
    "agent": "run",
    "import": "nvidia-smi",
    "follow": "otlp",
    "allocations": "import",
    "allocations import": "slurm",
    "lake": "compact",
    "plan": "forecast",
    "annotations": "add",
    "pseudonym": "new-key",
}
"""A verb of each."""


def test_without_arguments_it_shows_the_commands_and_fails_as_wrong_use(run_fallow: RunFallow) -> None:
    done = run_fallow()
    assert (done.returncode, done.stderr) == (2, "")
    for flag in ("-h", "--help", "help"):
        helped = run_in_process(flag)
        assert (helped.returncode, helped.stdout) == (0, done.stdout)
    lines = done.stdout.splitlines()
    for person, commands in COMMANDS_BY_PERSON.items():
        first = next(place for place, line in enumerate(lines) if line.startswith(f"{person} "))
        for place, command in enumerate(commands, first):
            assert lines[place][9:].split(maxsplit=1) == [command.name, command.summary]
    assert f" {', '.join(each.name for each in REFERENCE)}: " in done.stdout
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80


def test_help_of_a_command_is_what_its_flag_shows() -> None:
    for command in ("ledger", "plan queue", "lake compact"):
        done = run_in_process("help", *command.split())
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == run_in_process(*command.split(), "--help").stdout
        assert done.stdout.startswith(f"usage: fallow {command} ")
    assert len(run_in_process("plan", "--help").stdout.splitlines()) == len(PLANS) + 7


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_alone_lists_its_verbs_as_wrong_use(group: str) -> None:
    done = run_in_process(*group.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert f"usage: fallow {group} " in done.stderr
    [line] = [each for each in done.stderr.splitlines() if each.split()[:1] == [GROUPS[group]]]
    assert len(line.split()) > 3
    assert "required" not in done.stderr


def test_the_version() -> None:
    for flag in ("-V", "--version", "version"):
        done = run_in_process(flag)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"fallow {fallow.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ledgr"], "fallow: there is no command 'ledgr'; did you mean 'ledger'?\n"),
        (["zzz"], "fallow: there is no command 'zzz'; `fallow --help` lists the commands\n"),
        ([""], "fallow: there is no command ''; "),
        (["schema", "--jso"], "unrecognized arguments: --jso"),  # a flag cannot be shortened
    ],
    ids=["nearest", "unknown", "empty", "shortened"],
)
def test_wrong_use_is_said_in_a_sentence(run_fallow: RunFallow, arguments: list[str], said: str) -> None:
    done = run_fallow(*arguments)
    assert (done.returncode, done.stdout, said in done.stderr) == (2, "", True)


@pytest.mark.parametrize("verb", ["agent run", "report send", "findings ack", "annotations add", "pseudonym table"])
def test_the_example_of_a_verb_is_one_line_that_can_be_copied(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    [*_, example] = run_in_process(*verb.split(), "--help").stdout.splitlines()
    assert example.startswith(f"example: fallow {verb} ")


@pytest.mark.parametrize("command", [*COMMANDS, *VERBS], ids=lambda command: command.name)
def test_every_command_shows_an_example_and_refuses_a_flag_that_it_lacks(command: Command) -> None:
    group = ["lake"] if command in VERBS else []
    name = " ".join([*group, command.name])
    done = run_in_process(*group, command.name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: fallow {name}" in done.stdout
    assert f"example: {command.example}" in done.stdout
    assert command.example.startswith(f"fallow {name}{' --lake ' if group else ''}")
    if group:
        assert command.summary in " ".join(run_in_process("lake", "--help").stdout.split())
    wrong = run_in_process(*group, command.name, "--no-such-flag")
    assert (wrong.returncode, wrong.stdout, "Traceback" in wrong.stderr) == (2, "", False)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("analytics.lake_care.repair", "analytics.commands.lake_check"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "polars", None)  # as in an environment without it
    done = run_in_process("lake", "check", "--lake", "/srv/lake")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "fallow: `fallow lake check` needs the package polars, which the base install leaves out; "
        "install it with: pip install 'fallow[analytics]'\n"
    )
    with pytest.raises(MissingExtraError):
        cli.load(Command("x", "", "", "a_module_that_nobody_has.at_all", "analytics"))
    for ours in ("fallow.no_such_module", "agent.no_such_module"):
        with pytest.raises(ModuleNotFoundError):
            cli.load(Command("x", "", "", ours, "analytics"))
    with pytest.raises(ModuleNotFoundError):
        cli.load(Command("x", "", "", "a_module_that_nobody_has"))


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (EmptyLakeError("the lake is empty", "fill it"), 1, "fallow: the lake is empty; fill it\n"),
        (UsageError("that is wrong", "write it right"), 2, "fallow: that is wrong; write it right\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=["error", "usage", "interrupt"],
)
def test_an_error_is_one_sentence_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, said: str
) -> None:
    def fail(_arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_run", fail)
    assert cli.main([]) == code
    assert capsys.readouterr() == ("", said)


def into(out: int, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-W", "error", "-m", "fallow", *arguments]
    where = {"cwd": REPOSITORY, "env": clean_environment()}
    done = subprocess.run(  # type: ignore[call-overload]
        command, stdout=out, stderr=subprocess.PIPE, text=True, check=False, timeout=60, **where
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", [["schema"], ["--version"], ["schema", "--help"]])
def test_a_reader_that_goes_away_is_no_failure(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # gone before the first byte
    try:
        assert into(writer, *arguments) == (0, "")
    finally:
        os.close(writer)


@pytest.mark.parametrize("arguments", [["schema"], ["--version"], ["schema", "--json"], ["doctor", "--json"]])
def test_output_that_cannot_be_written_is_one_sentence(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123  # a device that is always full
        said = "fallow: cannot write the output: No space left on device\n"
        assert into(full.fileno(), *arguments) == (1, said)


def test_other_trouble_of_the_system_is_not_taken_for_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_arguments: list[str]) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "/srv/report.md")

    monkeypatch.setattr(cli, "_run", fail)
    with pytest.raises(OSError, match=r"/srv/report\.md"):
        cli.main([])


def test_the_command_itself_loads_nothing_heavy() -> None:
    code = (
        "import argparse, json, sys, fallow.cli, fallow.schema.command, fallow.lake, fallow.config, fallow.lake_verbs;"
        "fallow.lake_verbs.VERB.add_arguments(argparse.ArgumentParser()); print(json.dumps(list(sys.modules)))"
    )
    done = run_python("-c", code)
    assert done.stderr == ""
    assert {name.partition(".")[0] for name in json.loads(done.stdout)} & HEAVY == set()
