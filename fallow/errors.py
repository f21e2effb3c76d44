"""Every error that fallow raises on purpose, as one tree.

FallowError                 something went wrong that a person can act on (exit 1)
├── UsageError              the command line or a setting is wrong (exit 2)
│   └── ConfigError         the config file or an environment variable is wrong (exit 2)
├── LakeError               the lake cannot be read or written
│   ├── EmptyLakeError      the lake is there and holds nothing yet for the question
│   │   └── EmptyScopeError  nothing of it is of the pool, team or user that is asked for
│   ├── UnusableFileError   one file in the lake cannot be used; most readers leave it out and say so
│   │   ├── BrokenFileError       it is not a whole Parquet file of its table
│   │   │   ├── OversizedFileError    it is larger than any file of a lake
│   │   │   ├── IrregularFileError    it is a pipe, a device, a folder, or a link out of the lake
│   │   │   └── ForeignFileError      it says that it is of another host than its folder
│   │   └── UnreadableFileError   this user may not read it, or its disk does not give it
│   ├── DamagedMarkerError  the file that says which lake this is says nothing
│   ├── NoLakeError         there is no marker of a lake, or that of another lake than expected
│   ├── HostNameTakenError  another agent publishes under this host's name
│   ├── VanishedFileError   a file of the lake was replaced by another while it was read
│   └── SchemaVersionError  a file in the lake has a schema version that this fallow does not read
├── InputError              a file given to an importer cannot be used
├── DriverError             the NVIDIA driver or its library cannot be used
├── SpoolError              a local spool cannot be used
│   └── UnsafeSpoolError    others than the agent's user could swap what is in it (exit 2)
└── MissingExtraError       a command needs packages that the base install leaves out

Each carries a message (what happened, naming the file or value) and a hint (what to do next);
the command prints both as one line and no traceback.
"""

from __future__ import annotations

import re

_VALUE_LONGEST = 200
_MESSAGE_LONGEST = 1000

_LONG_VALUE = re.compile(
    rf"(?<!\w)'(?:[^']|(?<=\w)'(?=\w)){{{_VALUE_LONGEST},}}'(?!\w)"
    rf'|(?<!\w)"[^"]{{{_VALUE_LONGEST},}}"(?!\w)'
    rf"|\S{{{_VALUE_LONGEST + 1},}}"
)
"""A value that a message repeats: a text in quotes, whose apostrophes stand between letters, or a text without a blank."""


class FallowError(Exception):
    """What happened, and a hint that says what to do next."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = _shortened(message)
        self.hint = _shortened(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


def _shortened(text: str) -> str:
    """Return the text with at most 200 characters of a value; `…` stands for what is left out.

    Of more than 1,000 characters only the first and the last 200 stay: a value with blanks and without quotes makes a
    message so long, and its end says what is wrong.
    """
    short = _LONG_VALUE.sub(lambda value: f"{value[0][:_VALUE_LONGEST]}…", text)
    if len(short) > _MESSAGE_LONGEST:
        return f"{short[:_VALUE_LONGEST]}…{short[-_VALUE_LONGEST:]}"
    return text if short == text else short  # a sentence that can be translated stays one


class UsageError(FallowError):
    """The command line or a setting is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """The config file or an environment variable is wrong."""


class LakeError(FallowError):
    """The lake cannot be read or written."""


class EmptyLakeError(LakeError):
    """The lake is there and holds nothing yet for the question."""


class EmptyScopeError(EmptyLakeError):
    """Nothing of it is of the pool, team or user that is asked for."""


class UnusableFileError(LakeError):
    """One file in the lake cannot be used; `kind` is one of `fallow.quarantine.FAULTS`."""

    kind = "broken"


class BrokenFileError(UnusableFileError):
    """A file in the lake is not a whole Parquet file of its table."""


class OversizedFileError(BrokenFileError):
    """A file in the lake is larger, or would be when decoded, than any that fallow writes."""

    kind = "too_large"


class IrregularFileError(BrokenFileError):
    """What has the name of a file in the lake is a pipe, a device, a folder, or a link out of the lake."""

    kind = "not_regular"


class ForeignFileError(BrokenFileError):
    """A file in the lake says that it is of another host than its folder."""

    kind = "foreign_host"


class UnreadableFileError(UnusableFileError):
    """A file in the lake may not be read by this user, or its disk fails; it may pass without the file being changed."""

    kind = "unreadable"


class DamagedMarkerError(LakeError):
    """The file that says which lake this is says nothing."""


class NoLakeError(LakeError):
    """There is no marker of a lake, or that of another lake than expected."""


class HostNameTakenError(LakeError):
    """Another agent publishes under this host's name."""


class VanishedFileError(LakeError):
    """A file of the lake was replaced by another while it was read; reading again helps."""


class SchemaVersionError(LakeError):
    """A file in the lake has a schema version that this fallow does not read."""


class InputError(FallowError):
    """A file given to an importer cannot be used."""


class DriverError(FallowError):
    """The NVIDIA driver or its library cannot be used; `code` is what the library's start returned, 0 where it was not that."""

    def __init__(self, message: str, hint: str = "", code: int = 0) -> None:
        super().__init__(message, hint)
        self.code = code


class SpoolError(FallowError):
    """A local spool cannot be used."""


class UnsafeSpoolError(SpoolError):
    """Others than the agent's user and root could have it write elsewhere: a setting has to change, no restart helps."""

    exit_code = 2


class MissingExtraError(FallowError):
    """A command needs packages that the base install leaves out."""
