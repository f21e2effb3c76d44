"""The one command. It loads a subcommand's package only when that subcommand is called.

A command module has two functions: `add_arguments(parser)` and `run(args) -> int` (the exit code).
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import io
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

from fallow import __version__
from fallow.errors import FallowError, MissingExtraError, UsageError
from fallow.output import say, say_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class CommandModule(Protocol):
    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int:
        """Does it; returns the exit code or raises FallowError."""
        ...


@dataclass(frozen=True)
class Command:
    """One command: its name, what it does, an example, its module and the extra that the module needs."""

    name: str
    summary: str
    example: str
    module: str
    extra: str = ""


COMMANDS: tuple[Command, ...] = (
    Command("agent", "sample this host's GPUs into the lake",
            "fallow agent run --lake /srv/lake --spool /var/lib/fallow --interval 10s", "agent.command"),
    Command("top", "watch this host's GPUs live", "fallow top", "agent.top.command"),
    Command("doctor", "check driver, devices, CUDA and lake on this host",
            "fallow doctor --lake /srv/lake --spool /var/lib/fallow", "agent.doctor.command"),
    Command("import", "bring history in from files or a metrics server",
            "fallow import nvidia-smi gpu.csv --host gn001 --lake /srv/lake", "analytics.commands.imports", "analytics"),
    Command("follow", "keep up with a live source of measurements",
            "fallow follow prometheus --url http://prometheus:9090 --lake /srv/lake", "analytics.commands.follow", "analytics"),
    Command("allocations", "import and check who was given which GPU",
            "fallow allocations import slurm jobs.txt --lake /srv/lake", "analytics.commands.allocations", "analytics"),
    Command("lake", "make a lake; check, compact, mend and expire its files",
            "fallow lake init --lake /srv/lake", "fallow.lake_verbs"),
    Command("ledger", "account for every GPU-hour by state",
            "fallow ledger --lake /srv/lake --since 7d", "analytics.commands.ledger", "analytics"),
    Command("prices", "list what a GPU-hour costs, and where each price is from",
            "fallow prices --lake /srv/lake", "analytics.commands.prices", "analytics"),
    Command("findings", "list GPUs that can be taken back, with evidence",
            "fallow findings --lake /srv/lake --json", "analytics.commands.findings", "analytics"),
    Command("recommendations", "say what to give back, what it saves, who acts",
            "fallow recommendations --lake /srv/lake --since 7d", "analytics.commands.recommendations", "analytics"),
    Command("plan", "say who waits and why, who gets what, and when to order",
            "fallow plan queue --lake /srv/lake", "analytics.commands.plan", "analytics"),
    Command("sql", "ask lake, ledger, findings and prices in SQL",
            "fallow sql 'select state, sum(cost) from ledger group by state' --lake /srv/lake", "analytics.commands.sql",
            "analytics"),
    Command("annotations", "note what happened when, for the charts",
            "fallow annotations add 'driver 580' --at 2026-11-20T09:00Z --lake /srv/lake", "analytics.commands.annotations",
            "analytics"),
    Command("evaluate", "judge findings and states by your own labels",
            "fallow evaluate --lake /srv/lake --labels labels.csv", "analytics.commands.evaluate", "analytics"),
    Command("report", "write the waste report",
            "fallow report --lake /srv/lake --format md --out report.md", "analytics.commands.report", "analytics"),
    Command("dashboard", "serve the pages for capacity planners",
            "fallow dashboard --lake /srv/lake --port 8050", "dashboard.command", "dashboard"),
    Command("demo", "simulate a fleet and show what fallow makes of it",
            "fallow demo --out demo", "dashboard.demo", "analytics"),
    Command("pseudonym", "make the key, and pseudonyms of users",
            "fallow pseudonym of ann --key /etc/fallow/pseudonym.key", "fallow.pseudonym_command"),
    Command("schema", "describe the lake's tables",
            "fallow schema gpu --json", "fallow.schema.command"),
)  # fmt: skip


_UNWRITABLE = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG)
"""How the kernel refuses output to a full or broken disk."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that the terminal lacks is replaced
            stream.reconfigure(errors="replace")
    code = 0
    try:
        code = _code(arguments)
        # here, where a reader that went away is handled, and not in the interpreter's own flush at exit
        print(end="", flush=True)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _drop_output()  # the reader (head, less) has exited: not a failure
    except OSError as error:
        # what fails on a path names it; without one, it is the output that could not be written
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        _drop_output()
        with contextlib.suppress(OSError):  # standard error may be the same full disk
            say(f"cannot write the output: {error.strerror}")
        return code or 1
    return code


def _code(arguments: list[str]) -> int:
    """The exit code; prints a FallowError as one sentence."""
    try:
        return _run(arguments)
    except FallowError as error:
        say(str(error))
        return error.exit_code


def _drop_output() -> None:
    """Discards what is left in the buffer, so that the flush at exit prints no traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version", "version"):
        print(f"fallow {__version__}")
        return 0
    command = next((each for each in COMMANDS if each.name == arguments[0]), None)
    if command is None:
        from difflib import get_close_matches  # with the error, not before

        near = get_close_matches(arguments[0], [each.name for each in COMMANDS], n=1)
        hint = f"did you mean '{near[0]}'?" if near else "`fallow --help` lists the commands"
        raise UsageError(f"there is no command '{arguments[0]}'", hint)
    module = load(command)
    parser = _Parser(
        prog=f"fallow {command.name}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=f"example: {command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    try:
        args = parser.parse_args(arguments[1:])
    except SystemExit as stop:  # argparse has said what is wrong; --help ends with 0
        return int(stop.code or 0)
    return module.run(args)


class _Parser(argparse.ArgumentParser):
    """Reports errors as one sentence with a hint; verbs inherit it."""

    def error(self, message: str) -> NoReturn:
        from difflib import get_close_matches

        verbs = next((each for each in self._actions if isinstance(each, argparse._SubParsersAction)), None)  # noqa: SLF001
        if verbs is not None and message == f"the following arguments are required: {verbs.metavar}":
            summaries = {each.dest: each.help or "" for each in verbs._choices_actions}  # noqa: SLF001
            what = str(verbs.metavar) if str(verbs.metavar).isupper() else "VERB"
            say_lines(_page(self.description or "", self.prog, what, summaries))
            raise SystemExit(2)
        wrong = [word for word in message.split() if word.startswith("--")] if "unrecognized" in message else []
        near = [found for word in wrong for found in get_close_matches(word, self._option_string_actions, n=1)]
        hint = f"did you mean {near[0]}?" if near else f"`{self.prog} --help` shows an example"
        raise UsageError(f"{self.prog.removeprefix('fallow ')}: {message}", hint)


class VerbParser(_Parser):
    """The parser of one verb of a command. It loads the verb's module with the flags, once the verb is asked for."""

    def __init__(self, *, command: Command, **about: Any) -> None:
        super().__init__(**about)
        self._command: Command | None = command

    def load(self) -> None:
        """Add the verb's flags; raises MissingExtraError where the packages that it needs are not installed."""
        if self._command is not None:
            module = load(self._command, self.prog.removeprefix("fallow "))
            self._command = None
            module.add_arguments(self)
            self.set_defaults(run_verb=module.run)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as every parser does, with the flags of the module."""
        self.load()
        return super().parse_known_args(args, namespace)


def add_verbs(parser: argparse.ArgumentParser, commands: Iterable[Command], called: str = "VERB") -> None:
    """Add a parser for each command of one name below another; `args.run_verb(args)` runs the one that is asked for."""
    verbs = parser.add_subparsers(metavar=called, required=True, title="verbs", parser_class=VerbParser)
    for each in commands:
        verbs.add_parser(
            each.name,
            command=each,
            help=each.summary,
            description=f"{each.summary[0].upper()}{each.summary[1:]}.",
            epilog=f"example: {each.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )


def load(command: Command, called: str = "") -> CommandModule:
    """The module behind a command, or the verb in it; MissingExtraError where the packages or the Python that it needs are missing."""
    called = called or command.name
    if command.extra and sys.version_info < (3, 11):
        raise MissingExtraError(
            f"`fallow {called}` needs Python 3.11 or newer, and this is {sys.version_info[0]}.{sys.version_info[1]}",
            "run it on a host with a newer Python; only the agent, `top` and `doctor` run on 3.10",
        )
    try:
        module = importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        if (told := missing_extra(error, called, command.extra)) is None:
            raise
        raise told from error
    return cast("CommandModule", getattr(module, "VERB", module))


def missing_extra(error: ModuleNotFoundError, command: str, extra: str) -> MissingExtraError | None:
    """What to say where a module of an extra is not installed; None where the error is of another kind."""
    missing = (error.name or "").partition(".")[0]
    if not extra or missing in ("fallow", "agent", "analytics", "dashboard", ""):
        return None
    return MissingExtraError(
        f"`fallow {command}` needs the package {missing}, which the base install leaves out",
        f"install it with: pip install 'fallow[{extra}]'",
    )


def _overview() -> str:
    summaries = {each.name: each.summary for each in COMMANDS}
    first = f"fallow {__version__}: finds the GPUs that are paid for and not used."
    return _page(first, "fallow", "COMMAND", summaries)


def _page(first: str, called: str, what: str, summaries: Mapping[str, str]) -> str:
    """What a group of commands or verbs prints when none of them is named: a line for each."""
    width = max(map(len, summaries))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in summaries.items()]
    usage = f"usage: {called} {what} [ARGUMENTS]"
    return "\n".join(
        [first, "", usage, "", *lines, "", f"`{called} {what} --help` shows its arguments and an example."]
    )
