"""The agent's log: one line per record on standard error, for people, for journald and for machines.

`extra={"kind": ..., "gpu": ...}` of a record becomes separate fields in the JSON form.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from fallow.clock import format_ms
from fallow.outside_text import visible_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_SEVERITY = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
"""Syslog's numbers of the levels, which journald reads at the start of a line (sd-daemon(3))."""

_ESCAPED = str.maketrans({chr(code): repr(chr(code))[1:-1] for code in (*range(32), 127, 0x85, 0x2028, 0x2029)})


def configure(form: str, level: str) -> None:
    """Send fallow's records of at least `level` (debug, info, warning or error) to standard error.

    `form` is `text` or `json`. A second call, after a reload of the config, replaces the earlier settings.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(journald=_journald(os.environ)))
    logger = logging.getLogger("fallow")
    for former in list(logger.handlers):
        logger.removeHandler(former)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False


class TextFormatter(logging.Formatter):
    """Formats `TIME LEVEL MESSAGE`; for journald, which adds the time, `<N>MESSAGE` with the severity as a number."""

    def __init__(self, *, journald: bool) -> None:
        super().__init__()
        self._journald = journald

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line; line breaks and control characters become escapes."""
        message = record.getMessage()
        if trace := _trace(self, record):
            message += f" [{trace}]"
        line = visible_lines(message.translate(_ESCAPED))
        if self._journald:
            return f"<{_SEVERITY.get(record.levelno, 6)}>{line}"
        return f"{_time(record)} {record.levelname.lower()} {line}"


class JsonFormatter(logging.Formatter):
    """Formats one JSON object: time (RFC 3339, UTC), level, message, then the record's extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line; a traceback is one text in the field `traceback`."""
        fields: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _STANDARD and name not in fields}
        if trace := _trace(self, record):
            fields["traceback"] = trace
        return json.dumps(fields, default=str)


def _time(record: logging.LogRecord) -> str:
    moment = format_ms(int(record.created * 1000))
    return moment if "." in moment else f"{moment[:-1]}.000Z"  # times of equal width


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""


def _journald(environment: Mapping[str, str]) -> bool:
    """Return whether standard error is the journal's stream, by its device and inode in the environment."""
    try:
        here = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return environment.get("JOURNAL_STREAM") == f"{here.st_dev}:{here.st_ino}"
