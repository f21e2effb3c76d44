"""Files of /proc and /sys, read as the agent can afford at every look: pathlib takes three times as long.

Missing, denied, switched off and gone between two calls are one and the same: None, or nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_AT_ONCE = 4096  # the kernel hands longer files out page by page


def read(path: str, most: int = _AT_ONCE) -> bytes | None:
    """The first `most` bytes of the file; None where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = part = os.read(fd, most)
        while part and len(text) < most and most > _AT_ONCE:
            part = os.read(fd, most - len(text))
            text += part
    except OSError:
        return None
    finally:
        os.close(fd)
    return text


def read_text(path: str) -> str:
    """What a short file says, without blanks around it; empty where it cannot be read."""
    return (read(path) or b"").decode(errors="replace").strip()


def names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def link_target(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return ""


def kernel_address(driver_address: str) -> str:
    """The kernel's way to write the driver's 00000000:17:00.0: it writes four digits of the domain, in small letters."""
    domain, _, rest = driver_address.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc/PID/stat says: start and CPU in clock ticks since boot, memory in pages (proc(5)).

    `texts` is where the kernel has put the arguments and the environment. Every program lies elsewhere, even the same
    one started again, and while the kernel is still starting it they are not all there. Empty where that is not shown:
    without the right to read the environment, and for a process that has ended.
    """

    command: bytes
    """The name of its program, cut off after 15 characters."""
    parent_pid: int
    cpu_ticks: int
    start_ticks: int
    resident_pages: int
    texts: tuple[bytes, ...] = ()


def read_stat(folder: str) -> Stat | None:
    """The numbers of the process in this folder of /proc; None where it is not shown.

    A command may hold blanks, brackets and line ends, so that only the last `)` ends it.
    """
    text = read(f"{folder}/stat") or b""
    opening, closing = text.find(b"("), text.rfind(b")")
    fields = text[closing + 2 :].split()
    if opening < 0 or len(fields) < 22:
        return None
    texts = tuple(fields[45:49])
    return Stat(
        text[opening + 1 : closing],
        int(fields[1]),
        int(fields[11]) + int(fields[12]),
        int(fields[19]),
        int(fields[21]),
        texts if any(each != b"0" for each in texts) else (),
    )
