"""Login names for user ids, from a directory that may be slow or of another machine."""

from __future__ import annotations

import pwd
from typing import TYPE_CHECKING

from agent.attribution.background import Background
from agent.attribution.proc import printable, printable_text, read, shares_root

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.attribution.background import Failures

_KEEP_MS = 3_600_000  # people join and leave by the day
_ASK_AGAIN_MS = 600_000  # a number without a name may be one whose directory was down
_LOCAL_S = 0.02  # a local file answers in microseconds: its answer is worth this wait, a directory's is not
_LATE_S = 5.0
_PASSWD_BYTES = 1 << 24


class LoginNames:
    """Names of users, asked in the background and remembered."""

    def __init__(self, proc: str, failures: Failures) -> None:
        self._proc = proc
        self._failures = failures
        self._ours = shares_root(proc)
        self._background: Background[dict[int, str | None]] = Background("fallow-names")
        self._names: dict[int, tuple[str | None, int]] = {}
        self._late = False

    def name(self, user_id: int) -> str | None:
        """The login name; the number where the user has none or the directory does not answer; None until it is asked."""
        if user_id in self._names:
            return self._names[user_id][0] or str(user_id)
        return str(user_id) if self._late else None

    def look_up(self, user_ids: Iterable[int], now_ms: int) -> None:
        """Asks for names that are unknown or old, and takes what came back since the last call."""
        self._take(now_ms)
        due = {user_id for user_id in user_ids if self._is_due(user_id, now_ms)}
        if due and not self._background.busy:
            self._background.ask(lambda: self._ask(due))
            self._take(now_ms, _LOCAL_S)
        elif self._background.busy_s > _LATE_S and not due <= self._names.keys():
            self._late = True  # the number is the truth that there is
            self._failures.failed(
                "names", "the user directory does not answer: users stand as numbers; check `getent passwd`"
            )

    def wait(self, now_ms: int, wait_s: float) -> None:
        """Waits so long at most for a question that is out."""
        self._take(now_ms, wait_s)

    def _is_due(self, user_id: int, now_ms: int) -> bool:
        if user_id not in self._names:
            return True
        name, asked_ms = self._names[user_id]
        return abs(now_ms - asked_ms) > (_ASK_AGAIN_MS if name is None else _KEEP_MS)

    def _take(self, now_ms: int, wait_s: float = 0.0) -> None:
        answer = self._background.take(wait_s)
        if answer is None:
            return
        self._names |= {user_id: (name, now_ms) for user_id, name in (answer.result or {}).items()}
        self._late = False
        self._failures.worked("names")

    def _ask(self, user_ids: set[int]) -> dict[int, str | None]:
        if self._ours:
            return {user_id: _from_directory(user_id) for user_id in user_ids}
        # in a container with the host's processes, only the host knows who its numbers are; None leaves the number
        names = _passwd(read(f"{self._proc}/1/root/etc/passwd", _PASSWD_BYTES) or b"")
        return {user_id: names.get(user_id) for user_id in user_ids}


def _from_directory(user_id: int) -> str | None:
    try:
        return printable_text(pwd.getpwuid(user_id).pw_name)
    except (KeyError, OverflowError):
        return None


def _passwd(text: bytes) -> dict[int, str]:
    """Names by number out of a passwd file, the first entry of a number counts (passwd(5))."""
    names: dict[int, str] = {}
    for line in text.splitlines():
        fields = line.split(b":")
        if len(fields) >= 7 and fields[2].isdigit():
            names.setdefault(int(fields[2]), printable(fields[0]))
    return names
