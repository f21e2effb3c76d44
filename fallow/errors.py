"""The errors that fallow raises on purpose, as one tree.

FallowError                 a person can act on the error (exit 1)
├── UsageError              the command line or a setting is wrong (exit 2)
│   └── ConfigError         the config file or an environment variable is wrong (exit 2)
├── LakeError               the lake cannot be read or written
│   ├── EmptyLakeError      the lake exists and has no data for the question
│   │   └── EmptyScopeError  the data has none of the pool, model, team or user
│   ├── UnusableFileError   a file in the lake cannot be used; most readers leave it out with a message
│   │   ├── BrokenFileError       the file is not a whole Parquet file of its table
│   │   │   ├── OversizedFileError    the file is larger than any file of a lake
│   │   │   ├── IrregularFileError    the name is a pipe, a device, a folder, or a link out of the lake
│   │   │   └── ForeignFileError      the file names another host than its folder
│   │   └── UnreadableFileError   the user may not read the file, or the disk fails
│   ├── DamagedMarkerError  the marker of the lake is damaged
│   ├── NoLakeError         the marker of the lake is missing, or is of another lake
│   ├── HostNameTakenError  another agent publishes under this host's name
│   ├── VanishedFileError   a file of the lake was replaced while it was read
│   └── SchemaVersionError  a file in the lake has a schema version that this fallow does not read
├── InputError              a file given to an importer cannot be used
├── DriverError             the NVIDIA driver or its library cannot be used
├── SpoolError              a local spool cannot be used
│   └── UnsafeSpoolError    users other than the agent's could replace its files (exit 2)
└── MissingExtraError       a command needs packages that the base install leaves out

An error has a message, which names the file or value, and a hint, which says what to do next. The command prints both
on one line, without a traceback.
"""

from __future__ import annotations

import re

_VALUE_LONGEST = 200
_MESSAGE_LONGEST = 1000

_LONG_VALUE = re.compile(
    r"(?P<columns>(?<!\S)--format=[A-Za-z,]+(?!\S))"
    rf"|(?<!\w)'(?:[^']|(?<=\w)'(?=\w)){{{_VALUE_LONGEST},}}'(?!\w)"
    rf'|(?<!\w)"[^"]{{{_VALUE_LONGEST},}}"(?!\w)'
    rf"|\S{{{_VALUE_LONGEST + 1},}}"
)
"""A long value in a message: quoted text, in which apostrophes stand between letters, or text without a blank.

The columns in a command that a hint gives stay whole: people copy it.
"""


class FallowError(Exception):
    """An error with a message, and a hint that says what to do next."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = _shortened(message)
        self.hint = _shortened(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


def _shortened(text: str) -> str:
    """Return the text with values cut to 200 characters; `…` stands for the rest.

    A text of more than 1,000 characters is cut to its first and last 200: it has a value with blanks and without
    quotes, and ends with the reason.
    """
    short = _LONG_VALUE.sub(lambda value: value["columns"] or f"{value[0][:_VALUE_LONGEST]}…", text)
    if len(short) > _MESSAGE_LONGEST:
        return f"{short[:_VALUE_LONGEST]}…{short[-_VALUE_LONGEST:]}"
    return text if short == text else short  # an unchanged text keeps its type, so that it can be translated


class UsageError(FallowError):
    """The command line or a setting is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """The config file or an environment variable is wrong."""


class LakeError(FallowError):
    """The lake cannot be read or written."""


class EmptyLakeError(LakeError):
    """The lake exists and has no data for the question."""


class EmptyScopeError(EmptyLakeError):
    """The data has none of the pool, model, team or user."""


class UnusableFileError(LakeError):
    """A file in the lake cannot be used; `kind` is one of `fallow.quarantine.FAULTS`."""

    kind = "broken"


class BrokenFileError(UnusableFileError):
    """A file in the lake is not a whole Parquet file of its table."""


class OversizedFileError(BrokenFileError):
    """A file in the lake is larger than any that fallow writes, or would be when decoded."""

    kind = "too_large"


class IrregularFileError(BrokenFileError):
    """A name of a file in the lake belongs to a pipe, a device, a folder, or a link out of the lake."""

    kind = "not_regular"


class ForeignFileError(BrokenFileError):
    """A file in the lake names another host than its folder."""

    kind = "foreign_host"


class UnreadableFileError(UnusableFileError):
    """The user may not read a file in the lake, or its disk fails; the fault may pass without a change of the file."""

    kind = "unreadable"


class DamagedMarkerError(LakeError):
    """The marker of the lake is damaged."""


class NoLakeError(LakeError):
    """The marker of the lake is missing, or is of another lake."""


class HostNameTakenError(LakeError):
    """Another agent publishes under this host's name."""


class VanishedFileError(LakeError):
    """A file of the lake was replaced while it was read; reading again helps."""


class SchemaVersionError(LakeError):
    """A file in the lake has a schema version that this fallow does not read."""


class InputError(FallowError):
    """A file given to an importer cannot be used."""


class DriverError(FallowError):
    """The NVIDIA driver or its library is unusable; `code` is what the library's start returned, 0 for other faults."""

    def __init__(self, message: str, hint: str = "", code: int = 0) -> None:
        super().__init__(message, hint)
        self.code = code


class SpoolError(FallowError):
    """A local spool cannot be used."""


class UnsafeSpoolError(SpoolError):
    """Users other than root and the agent's could redirect its writes. A setting must change; restarts do not help."""

    exit_code = 2


class MissingExtraError(FallowError):
    """A command needs packages that the base install leaves out."""
