"""Whose PIDs the driver names, whether it names all of them, and whose user names hold.

The driver lists processes by their ids in the agent's own PID namespace and leaves out those that have none there.
"""

from __future__ import annotations

from pathlib import Path

from agent.attribution.proc import read

INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The machine's own PID namespace: PROC_PID_INIT_INO, 0xEFFFFFFC, in the kernel's include/linux/proc_ns.h."""

_STATUS_BYTES = 4096
_MOUNTS_BYTES = 1 << 20


def own_proc(proc: str) -> str | None:
    """The /proc whose process ids are those that the driver reports; None where none is at hand.

    A /proc of an outer namespace, mounted into a container (at /host/proc, say), counts its processes differently: there
    the ids of the agent's own namespace would name strangers. The line `NSpid` of a process lists its id in the
    namespace of the mount and then in each one further inside, so that a single number means: this namespace.
    """
    return next((each for each in dict.fromkeys((proc, "/proc")) if _shows_own_namespace(each)), None)


def _shows_own_namespace(proc: str) -> bool:
    text = read(f"{proc}/self/status", _STATUS_BYTES)
    if text is None:
        return False
    start = text.find(b"\nNSpid:")
    # a kernel without PID namespaces writes no such line
    return start < 0 or len(text[start + 7 :].split(b"\n", 1)[0].split()) == 1


def sees_all_processes(setting: str, proc: str | None) -> bool:
    """Whether no process on a GPU can hide from the driver's lists, by the setting `agent.sees_all_processes`.

    Decided by the namespace that the agent itself runs in, wherever the host's /proc may be mounted.
    """
    if setting != "auto":
        return setting == "yes"
    try:
        return proc is not None and str(Path(proc, "self/ns/pid").readlink()) == INITIAL_PID_NAMESPACE
    except OSError:
        return False


def shares_root(proc: str) -> bool:
    """Whether the first process of the namespace has the agent's root file system, and so its list of users.

    False in a container that was given the host's PID namespace: its /etc/passwd knows other people by the same numbers.
    True where the kernel does not show it: then the processes of other users are hidden as well.
    """
    first, own = _root_mount(f"{proc}/1/mountinfo"), _root_mount(f"{proc}/self/mountinfo")
    return first is None or own is None or first == own


def _root_mount(path: str) -> tuple[bytes, bytes] | None:
    """Device and folder of what is mounted at `/`, the topmost where several are (proc(5), mountinfo)."""
    mounts = [line.split(None, 5) for line in (read(path, _MOUNTS_BYTES) or b"").splitlines()]
    roots = [(fields[2], fields[3]) for fields in mounts if len(fields) > 4 and fields[4] == b"/"]
    return roots[-1] if roots else None
