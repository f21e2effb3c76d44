"""What a check says: one frozen result per thing that was looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum

Fact = str | int | float | bool | list[str] | None
"""A value that was found; None is unknown."""
Facts = dict[str, Fact]


class Status(StrEnum):
    """How it stands; only `error` makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """One result: `found` is a sentence for people, `facts` the same for machines.

    `subject` tells results of one check apart (a GPU, a folder; empty where there is only one), `remedy` says what to
    do and `next` is the command to type, each empty where there is nothing to do.
    """

    status: Status
    found: str
    remedy: str = ""
    next: str = ""
    subject: str = ""
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """A finding with the check that it comes from."""

    check: str
    finding: Finding

    @property
    def group(self) -> str:
        """The first half of the check's id."""
        return self.check.partition(".")[0]

    @property
    def name(self) -> str:
        """The second half."""
        return self.check.partition(".")[2]

    def as_json(self) -> dict[str, object]:
        """The result with all its keys, in the order of docs/doctor.md."""
        values = asdict(self.finding)
        order = ("status", "subject", "found", "remedy", "next", "facts")
        return {"check": self.check} | {name: values[name] for name in order}


def ok(found: str, facts: Facts | None = None, *, subject: str = "") -> Finding:
    """Nothing to do."""
    return Finding(Status.OK, found, subject=subject, facts=facts or {})


def skipped(why: str, facts: Facts | None = None, *, subject: str = "") -> Finding:
    """Does not apply here, or cannot be judged; `why` says the reason."""
    return Finding(Status.SKIPPED, why, subject=subject, facts=facts or {})


def warning(found: str, remedy: str, command: str, facts: Facts | None = None, *, subject: str = "") -> Finding:
    """Works, but costs or hides something."""
    return Finding(Status.WARNING, found, remedy, command, subject, facts or {})


def error(found: str, remedy: str, command: str, facts: Facts | None = None, *, subject: str = "") -> Finding:
    """Does not work."""
    return Finding(Status.ERROR, found, remedy, command, subject, facts or {})
