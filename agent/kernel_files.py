"""Reads files of /proc and /sys without pathlib, which takes three times as long.

Files that are missing, denied, switched off or gone between two calls give the same result: None, or an empty one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_AT_ONCE = 4096  # the kernel returns longer files page by page


def read(path: str, most: int = _AT_ONCE) -> bytes | None:
    """Return the first `most` bytes of the file; None where it is unreadable."""
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
    """Return the text of a short file, without blanks around it; empty where it is unreadable."""
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
    """Return the kernel's form of the driver's address 00000000:17:00.0: four digits of the domain, in lower case."""
    domain, _, device = driver_address.lower().partition(":")
    return f"{domain[-4:]}:{device}"


@dataclass(frozen=True, slots=True)
class Stat:
    """The values of /proc/PID/stat: start and CPU in clock ticks since boot, memory in pages (proc(5)).

    `texts` are the addresses of the arguments and the environment. They differ for every start of a program, and are
    incomplete while the kernel starts it. Empty where they are not shown: without the right to read the environment,
    and for a process that has ended.
    """

    command: bytes
    """The name of the program, cut after 15 characters."""
    parent_pid: int
    cpu_ticks: int
    start_ticks: int
    resident_pages: int
    texts: tuple[bytes, ...] = ()


def read_stat(folder: str) -> Stat | None:
    """Return the values of the process in this folder of /proc; None where it is not shown.

    A command may contain blanks, brackets and line ends, so only the last `)` ends it.
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
