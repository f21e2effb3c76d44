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
    from collections.abc import Mapping, Sequence


class CommandModule(Protocol):
    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int:
        """Run the command; return the exit code. Raises FallowError."""
        ...


@dataclass(frozen=True)
class Command:
    """A command: its name, a summary, an example, its module, and the extra whose packages the module needs."""

    name: str
    summary: str
    example: str
    module: str
    extra: str = ""


COMMANDS_BY_PERSON: Mapping[str, tuple[Command, ...]] = {
    "host": (
        Command("agent", "record this host's GPUs in the lake",
                "fallow agent run --lake /srv/lake --spool /var/lib/fallow --interval 10s", "agent.command"),
        Command("top", "show this host's GPUs live", "fallow top", "agent.top.command"),
        Command("doctor", "check driver, devices, CUDA and lake on this host",
                "fallow doctor --lake /srv/lake --spool /var/lib/fallow", "agent.doctor.command"),
    ),
    "planner": (
        Command("recommendations", "list actions on GPUs with value, owner and deadline",
                "fallow recommendations --lake /srv/lake --since 7d",
                "analytics.commands.recommendations", "analytics"),
        Command("findings", "list the evidence for recommendations",
                "fallow findings --lake /srv/lake --json", "analytics.commands.findings", "analytics"),
        Command("ledger", "account for every GPU-hour by state",
                "fallow ledger --lake /srv/lake --since 7d", "analytics.commands.ledger", "analytics"),
        Command("plan", "queue, allocation, forecast, purchase and what if",
                "fallow plan queue --lake /srv/lake", "analytics.commands.plan", "analytics"),
        Command("dashboard", "serve the pages for capacity planners",
                "fallow dashboard --lake /srv/lake --port 8050", "dashboard.command", "dashboard"),
        Command("evaluate", "compare findings and states with your own labels",
                "fallow evaluate --lake /srv/lake --labels labels.csv", "analytics.commands.evaluate", "analytics"),
    ),
    "payer": (
        Command("report", "write or send the report on wasted GPU time",
                "fallow report --lake /srv/lake --format md --out report.md", "analytics.commands.report", "analytics"),
        Command("prices", "list what a GPU-hour costs, with sources",
                "fallow prices --lake /srv/lake", "analytics.commands.prices", "analytics"),
    ),
    "data": (
        Command("import", "import history from files or a metrics server",
                "fallow import nvidia-smi gpu.csv --host gn001 --lake /srv/lake",
                "analytics.commands.imports", "analytics"),
        Command("follow", "record measurements from a live source",
                "fallow follow prometheus --url http://prometheus:9090 --lake /srv/lake",
                "analytics.commands.follow", "analytics"),
        Command("allocations", "import, list and check allocations of GPUs",
                "fallow allocations import slurm jobs.txt --lake /srv/lake",
                "analytics.commands.allocations", "analytics"),
        Command("annotations", "mark events on the charts",
                "fallow annotations add 'driver 580' --at 2026-11-20T09:00Z --lake /srv/lake",
                "analytics.commands.annotations", "analytics"),
        Command("lake", "create, check, compact, repair and expire a lake",
                "fallow lake init --lake /srv/lake", "fallow.lake_verbs"),
        Command("sql", "query lake, ledger, findings and prices in SQL",
                "fallow sql 'select state, sum(cost) from ledger group by state' --lake /srv/lake",
                "analytics.commands.sql", "analytics"),
        Command("pseudonym", "create a key, and print pseudonyms of users",
                "fallow pseudonym of ann --key /etc/fallow/pseudonym.key", "fallow.pseudonym_command"),
    ),
    "all": (
        Command("demo", "simulate a fleet, and show its report and pages",
                "fallow demo --out demo", "dashboard.demo", "analytics"),
    ),
}  # fmt: skip
"""The commands in the order of the help, by the person who needs them."""

REFERENCE: tuple[Command, ...] = (
    Command("schema", "describe the lake's tables", "fallow schema gpu --json", "fallow.schema.command"),
    Command("rules", "describe the rules behind the findings",
            "fallow rules held", "analytics.commands.rules", "analytics"),
    Command("settings", "list the settings, their defaults and variables",
            "fallow settings ledger", "analytics.commands.settings", "analytics"),
    Command("glossary", "explain the words of messages, pages and columns",
            "fallow glossary held", "analytics.commands.glossary", "analytics"),
)  # fmt: skip
"""Commands that print what a word, a rule, a setting or a column means."""

COMMANDS: tuple[Command, ...] = (*(each for group in COMMANDS_BY_PERSON.values() for each in group), *REFERENCE)

_UNWRITABLE = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG)
"""How the kernel refuses output to a full or broken disk."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that the terminal lacks is replaced
            stream.reconfigure(errors="replace")
    code = 0
    try:
        code = _code(arguments)
        # flush here, where a closed pipe is handled, not in the interpreter at exit
        print(end="", flush=True)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _drop_output()  # the reader (head, less) has exited: not a failure
    except OSError as error:
        # an error of a file names the file; an error without a name is of the output
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        _drop_output()
        with contextlib.suppress(OSError):  # standard error may be the same full disk
            say(f"cannot write the output: {error.strerror}")
        return code or 1
    return code


def _code(arguments: list[str]) -> int:
    """Return the exit code; prints a FallowError as one sentence."""
    try:
        return _run(arguments)
    except FallowError as error:
        say(str(error))
        return error.exit_code


def _drop_output() -> None:
    """Discard the buffered output, so that the flush at exit prints no traceback."""
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
    parser = _Parser(prog=f"fallow {command.name}", **_about(command))
    module.add_arguments(parser)
    try:
        args = parser.parse_args(arguments[1:])
    except SystemExit as stop:  # argparse has printed the error; --help exits with 0
        return int(stop.code or 0)
    return module.run(args)


class _Parser(argparse.ArgumentParser):
    """A parser that shows an example on one line, and reports an error as one sentence with a hint.

    Verbs inherit it.
    """

    def __init__(self, **about: Any) -> None:
        lines_as_written = {"formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(**lines_as_written | {"allow_abbrev": False} | about)

    def error(self, message: str) -> NoReturn:
        from difflib import get_close_matches

        verbs = self._verbs()
        if verbs is not None and message == f"the following arguments are required: {verbs.metavar}":
            say_lines(self._verbs_help(verbs))
            raise SystemExit(2)
        wrong = [word for word in message.split() if word.startswith("--")] if "unrecognized" in message else []
        near = [found for word in wrong for found in get_close_matches(word, self._option_string_actions, n=1)]
        hint = f"did you mean {near[0]}?" if near else f"`{self.prog} --help` shows an example"
        raise UsageError(f"{self.prog.removeprefix('fallow ')}: {message}", hint)

    def format_help(self) -> str:
        """Return the help; of a command that only has verbs, a line for each verb."""
        verbs = self._verbs()
        if verbs is not None and verbs.required and len(self._actions) == 2:  # --help and the verbs
            return self._verbs_help(verbs) + "\n"
        return super().format_help()

    def _verbs(self) -> argparse._SubParsersAction[Any] | None:
        return next(
            (each for each in self._actions if isinstance(each, argparse._SubParsersAction)),  # noqa: SLF001
            None,
        )

    def _verbs_help(self, verbs: argparse._SubParsersAction[Any]) -> str:
        summaries = {each.dest: each.help or "" for each in verbs._choices_actions}  # noqa: SLF001
        what = str(verbs.metavar) if str(verbs.metavar).isupper() else "VERB"
        return _verbs_page(self.description or "", self.prog, what, summaries, self.epilog or "")


class VerbParser(_Parser):
    """The parser of a verb. It loads the module of the verb when the verb is used, and not before."""

    def __init__(self, *, command: Command, **about: Any) -> None:
        super().__init__(**about)
        self._command: Command | None = command

    def load(self) -> None:
        """Add the flags of the verb; raises MissingExtraError if the packages of its extra are not installed."""
        if self._command is not None:
            module = load(self._command, self.prog.removeprefix("fallow "))
            self._command = None
            module.add_arguments(self)
            self.set_defaults(run_verb=module.run)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments after the module of the verb is loaded."""
        self.load()
        return super().parse_known_args(args, namespace)


@dataclass(frozen=True)
class VerbGroup:
    """The VERB of a command that only has verbs."""

    commands: tuple[Command, ...]
    called: str = "VERB"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add a parser for each verb, which gets its flags when the verb is used."""
        verbs = parser.add_subparsers(metavar=self.called, required=True, title="verbs", parser_class=VerbParser)
        for each in self.commands:
            verbs.add_parser(each.name, command=each, help=each.summary, **_about(each))

    def run(self, args: argparse.Namespace) -> int:
        code: int = args.run_verb(args)
        return code


def _about(command: Command) -> dict[str, Any]:
    """Return the settings of a command's parser."""
    return {
        "description": f"{command.summary[0].upper()}{command.summary[1:]}.",
        "epilog": f"example: {command.example}",
    }


def load(command: Command, called: str = "") -> CommandModule:
    """Return the module of a command, or its VERB; raises MissingExtraError for missing packages or an old Python."""
    called = called or command.name
    if command.extra and sys.version_info < (3, 11):
        raise MissingExtraError(
            f"`fallow {called}` needs Python 3.11 or newer, and this is {sys.version_info[0]}.{sys.version_info[1]}",
            "run it on a host with a newer Python; only the agent, `top` and `doctor` run on 3.10",
        )
    try:
        module = importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        if (explained := missing_extra(error, called, command.extra)) is None:
            raise
        raise explained from error
    return cast("CommandModule", getattr(module, "VERB", module))


def missing_extra(error: ModuleNotFoundError, command: str, extra: str) -> MissingExtraError | None:
    """Return the error that names the missing extra; None if `error` has another cause."""
    missing = (error.name or "").partition(".")[0]
    if not extra or missing in ("fallow", "agent", "analytics", "dashboard", ""):
        return None
    return MissingExtraError(
        f"`fallow {command}` needs the package {missing}, which the base install leaves out",
        f"install it with: pip install 'fallow[{extra}]'",
    )


def _overview() -> str:
    """Return the help of `fallow`: a line for each command, by person, and one line for the reference."""
    width = max(len(each.name) for each in COMMANDS)
    lines = []
    for person, commands in COMMANDS_BY_PERSON.items():
        labels = (person, *[""] * len(commands))
        lines += [
            f"{label:<{_PERSON}}  {each.name:<{width}}  {each.summary}"
            for label, each in zip(labels, commands, strict=False)
        ]
    return "\n".join(
        [
            f"fallow {__version__}: finds the GPUs that are paid for and not used.",
            "",
            "usage: fallow COMMAND [ARGUMENTS]",
            *lines,
            f"{'':<{_PERSON}}  {', '.join(each.name for each in REFERENCE)}: print the reference",
            _FOOTER.format(called="fallow COMMAND"),
        ]
    )


def _verbs_page(description: str, called: str, what: str, summaries: Mapping[str, str], example: str) -> str:
    """Return the help of a command that only has verbs: a line for each verb."""
    width = max(map(len, summaries))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in summaries.items()]
    above = [*([description, ""] if description else []), f"usage: {called} {what} [ARGUMENTS]", ""]
    return "\n".join([*above, *lines, "", *([example] if example else []), _FOOTER.format(called=f"{called} {what}")])


_PERSON = 7
_FOOTER = "`{called} --help` shows its arguments and an example."
