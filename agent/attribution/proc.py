"""Files of /proc: one process, the PID namespaces around it, and text of unknown origin made printable.

psutil reads what a process is when it is new. Its counters are read by hand at every look: psutil takes 2.1 ms for 32
processes where one read of each `stat` takes 0.8 ms (docs/agent-cost.md), and does not tell where the program's arguments lie.
psutil is not used for command lines and environments either: it splits rewritten command lines at blanks, which the masking of
secrets must not, and decodes all variables where four are wanted.
"""

from __future__ import annotations

import psutil

from agent.kernel_files import link_target, read

_CONTROL = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029), "\N{REPLACEMENT CHARACTER}")


def printable(raw: bytes) -> str:
    """The bytes as text: what is no UTF-8 and what would steer a terminal becomes U+FFFD."""
    return raw.decode(errors="replace").translate(_CONTROL)


def printable_text(text: str) -> str:
    """The text without lone surrogates and control characters, which no file or terminal should be handed."""
    return text.encode(errors="replace").decode().translate(_CONTROL)


_CGROUP_BYTES = 65_536
_ARGUMENT_BYTES = 8192
_ENVIRON_BYTES = 1 << 22  # the kernel allows a quarter of the stack limit, which is 2 MiB on common systems


def read_identity(proc: str, pid: int) -> tuple[int | None, int | None]:
    """Start in ms and real user id, by psutil; None is unknown.

    The owner of the process's folder would be root for one that may not be dumped.
    """
    psutil.PROCFS_PATH = proc
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return round(process.create_time() * 1000), process.uids().real
    except (psutil.Error, OSError, ValueError, LookupError, RuntimeError):
        return None, None


def read_cgroup(folder: str) -> str | None:
    text = read(f"{folder}/cgroup", _CGROUP_BYTES)
    return None if text is None else text.decode(errors="replace")


def read_arguments(folder: str) -> list[bytes] | None:
    """The command line as the program was given it, or as it has rewritten it; cut at 8 KiB, between two words."""
    text = (read(f"{folder}/cmdline", _ARGUMENT_BYTES) or b"").rstrip(b"\0 ")  # a rewritten one is padded with either
    if len(text) == _ARGUMENT_BYTES:
        text = text[: max(text.rfind(b"\0"), text.rfind(b" "), 0)]  # no mask would know half a secret
    return text.split(b"\0") if text else None  # a kernel thread, or a process that waits for its parent, has none


def read_environ(folder: str) -> bytes | None:
    """The environment with which the program began; None without the right to read it.

    Needs the same user or CAP_SYS_PTRACE. The bytes hold secrets: take out what is needed and let go of them.
    """
    return read(f"{folder}/environ", _ENVIRON_BYTES)


INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The machine's own PID namespace: PROC_PID_INIT_INO, 0xEFFFFFFC, in the kernel's include/linux/proc_ns.h."""

_MOUNTS_BYTES = 1 << 20


def own_proc(proc: str) -> str | None:
    """The /proc whose process ids are those that the driver reports; None where none is at hand.

    A /proc of an outer namespace, mounted into a container (at /host/proc, say), counts its processes differently: there
    the ids of the agent's own namespace would name strangers. The line `NSpid` of a process lists its id in the
    namespace of the mount and then in each one further inside, so that a single number means: this namespace.
    """
    return next((each for each in dict.fromkeys((proc, "/proc")) if _shows_own_namespace(each)), None)


def _shows_own_namespace(proc: str) -> bool:
    text = read(f"{proc}/self/status")
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
    return proc is not None and link_target(f"{proc}/self/ns/pid") == INITIAL_PID_NAMESPACE


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
