"""Files of /proc: one process, the PID namespaces around it, and text of unknown origin made printable.

psutil reads a new process's identity. The agent itself reads the counters: for 32 processes psutil takes 2.1 ms, and
one read of each `stat` takes 0.8 ms (docs/agent-cost.md). Only `stat` has the address of the arguments. The agent also
reads command lines and environments itself. psutil splits rewritten command lines at blanks, which would break the
masking of secrets, and it decodes all variables where four are needed.
"""

from __future__ import annotations

import psutil

from agent.kernel_files import link_target, read

_CONTROL = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029), "\N{REPLACEMENT CHARACTER}")


def printable(raw: bytes) -> str:
    """Return the bytes as text; invalid UTF-8 and control characters become U+FFFD."""
    return raw.decode(errors="replace").translate(_CONTROL)


def printable_text(text: str) -> str:
    """Return the text without lone surrogates and control characters, which files and terminals should not get."""
    return text.encode(errors="replace").decode().translate(_CONTROL)


_CGROUP_BYTES = 65_536
_ARGUMENT_BYTES = 8192
_ENVIRON_BYTES = 1 << 22  # the kernel allows a quarter of the stack limit: 2 MiB on common systems


def read_identity(proc: str, pid: int) -> tuple[int | None, int | None]:
    """Return start in ms and real user id, by psutil; None is unknown.

    The folder's owner is no substitute: it is root for a process that may not be dumped.
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
    """Return the command line at the program's start, or as the program rewrote it; cut at 8 KiB, between two words."""
    # a rewritten command line is padded with either character
    text = (read(f"{folder}/cmdline", _ARGUMENT_BYTES) or b"").rstrip(b"\0 ")
    if len(text) == _ARGUMENT_BYTES:
        text = text[: max(text.rfind(b"\0"), text.rfind(b" "), 0)]  # the mask would not recognise half a secret
    return text.split(b"\0") if text else None  # a kernel thread or a zombie has no command line


def read_environ(folder: str) -> bytes | None:
    """Return the environment at the program's start; None without the right to read it.

    Needs the same user or CAP_SYS_PTRACE. The bytes contain secrets: extract the needed values and drop the bytes.
    """
    return read(f"{folder}/environ", _ENVIRON_BYTES)


INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The machine's own PID namespace: PROC_PID_INIT_INO, 0xEFFFFFFC, in the kernel's include/linux/proc_ns.h."""

_MOUNTS_BYTES = 1 << 20


def own_proc(proc: str) -> str | None:
    """Return the /proc with the process ids that the driver reports; None where there is none.

    A /proc of an outer namespace, mounted into a container (for example at /host/proc), has other process ids. There
    the ids of the agent's own namespace name other processes. The line `NSpid` of a process lists its id in the
    namespace of the mount and in every inner namespace. So a single number means that the mount shows this namespace.
    """
    return next((each for each in dict.fromkeys((proc, "/proc")) if _shows_own_namespace(each)), None)


def _shows_own_namespace(proc: str) -> bool:
    text = read(f"{proc}/self/status")
    if text is None:
        return False
    start = text.find(b"\nNSpid:")
    # a kernel without PID namespaces does not write this line
    return start < 0 or len(text[start + 7 :].split(b"\n", 1)[0].split()) == 1


def sees_all_processes(setting: str, proc: str | None) -> bool:
    """Return whether the driver's lists contain every process on a GPU, by the setting `agent.sees_all_processes`.

    The agent's own namespace decides, wherever the host's /proc is mounted.
    """
    if setting != "auto":
        return setting == "yes"
    return proc is not None and link_target(f"{proc}/self/ns/pid") == INITIAL_PID_NAMESPACE


def shares_root(proc: str) -> bool:
    """Return whether the namespace's first process has the agent's root file system, and therefore its list of users.

    False in a container with the host's PID namespace, whose /etc/passwd gives the same numbers to other people.
    True where the kernel does not show it: then the processes of other users are hidden too.
    """
    first, own = _root_mount(f"{proc}/1/mountinfo"), _root_mount(f"{proc}/self/mountinfo")
    return first is None or own is None or first == own


def _root_mount(path: str) -> tuple[bytes, bytes] | None:
    """Return device and folder of the topmost mount at `/` (proc(5), mountinfo)."""
    mounts = [line.split(None, 5) for line in (read(path, _MOUNTS_BYTES) or b"").splitlines()]
    roots = [(fields[2], fields[3]) for fields in mounts if len(fields) > 4 and fields[4] == b"/"]
    return roots[-1] if roots else None
