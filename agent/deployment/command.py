"""`fallow agent install|upgrade|uninstall`: a new environment beside the old, a check, one switch, and the way back."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.deployment import versions as environments
from agent.deployment.host_files import HOME, SYSUSERS_FILE, Host, ensure_user, find_user
from agent.deployment.service import (
    CONFIG,
    DROP_IN,
    DROP_INS,
    UNIT,
    UNIT_PATH,
    Systemd,
    find_service,
    running_agent,
    wait_for_interval,
    write_config,
    write_unit,
)
from agent.deployment.versions import CheckedEnvironment, Layout, VersionEnvironment, find_source
from fallow import config
from fallow.clock import SECOND_MS, parse_duration_ms
from fallow.errors import FallowError, UsageError
from fallow.lake import Lake
from fallow.output import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from agent.deployment.service import Service


@dataclass(frozen=True)
class WantedInstall:
    """What is to be on the host."""

    prefix: str
    user: str
    source: str
    version: str | None = None
    python: str | None = None
    lake: str | None = None
    keep: int = 2
    wait_s: float = 90.0
    packaged: bool = False
    """A package brings unit, user and settings; only the environment is to be made."""


@dataclass(frozen=True)
class InstallOutcome:
    """What was done, or with a dry run what would be."""

    version: str
    environment: str
    previous: str | None
    """Version that was in force before; None where there was none."""
    changed: tuple[str, ...]
    left_out: tuple[str, ...]
    restarted: bool
    missed_intervals: int | None
    """Intervals without a row between the old agent and the new one; None where nothing was restarted or none ran."""
    dry_run: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class _Change:
    """One change of what is in force, with all that it takes to undo it."""

    layout: Layout
    before: VersionEnvironment | None
    new: VersionEnvironment
    is_fresh: bool
    """Whether the new environment was made by this change."""

    def undo(self) -> None:
        layout = self.layout
        if self.before is not None:
            layout.switch(self.before.name)
        else:
            layout.unswitch()
        layout.host.put_back()
        self.discard()

    def discard(self) -> None:
        if self.is_fresh:
            self.layout.host.remove(self.layout.path(self.new.name))


@dataclass(frozen=True)
class _Now:
    is_changed: bool
    """Whether the environment or the unit is another than before."""
    is_running: bool
    """Whether an agent answers."""


def install(host: Host, wanted: WantedInstall, service: Service | None) -> InstallOutcome:
    """Brings the host to what is wanted; a second time it changes nothing.

    Raises FallowError where that fails; what was in force before is in force then, and the old agent runs.
    """
    layout = Layout(host, wanted.prefix)
    with layout.locked(), tempfile.TemporaryDirectory(prefix="fallow-install-") as temporary:
        layout.clear_unfinished()
        before = layout.current()
        new, is_fresh = _environment(layout, wanted, Path(temporary))
        return _put_in_force(_Change(layout, before, new, is_fresh), wanted, service)


def go_back(host: Host, wanted: WantedInstall, service: Service | None) -> InstallOutcome:
    """Puts the newest other version in force again."""
    layout = Layout(host, wanted.prefix)
    with layout.locked():
        before = layout.current()
        others = [each for each in layout.environments() if before is None or each.name != before.name]
        if not others:
            raise FallowError(f"no other version is kept in {wanted.prefix}", "install one with --from")
        return _put_in_force(_Change(layout, before, others[-1], is_fresh=False), wanted, service)


def _environment(layout: Layout, wanted: WantedInstall, temporary: Path) -> tuple[VersionEnvironment, bool]:
    """The environment for what is wanted, and whether it had to be made."""
    python = environments.base_python(wanted.python, layout.host)
    source = find_source(wanted.source, wanted.version, layout.host, temporary, environments.pip_of(sys.executable))
    for each in reversed(layout.environments()):
        if (each.wheel_sha256, each.python) == (source.sha256, " ".join(python)):
            return each, False
    return environments.build(layout, source, python, layout.next_name(source.version)), True


def _put_in_force(change: _Change, wanted: WantedInstall, service: Service | None) -> InstallOutcome:
    layout, host = change.layout, change.layout.host
    try:
        if not wanted.packaged:
            write_config(host, wanted.lake)
        checked = _checked(change)
        unit_changed = False if wanted.packaged else _write_unit(host, wanted, checked)
        owner = find_user(host, wanted.user)
        if owner is not None and not (host.is_image or host.dry_run):
            environments.check_user(layout, change.new, wanted.user, owner)
    except BaseException:
        host.put_back()
        change.discard()
        raise
    old = running_agent(checked.spool)
    switched = change.before is None or change.before.name != change.new.name
    if switched:
        layout.switch(change.new.name)
    restarted, missed = False, None
    if _needs_start(change, service, wanted, checked, _Now(switched or unit_changed, old is not None)):
        assert service is not None  # noqa: S101  # _needs_start has seen it
        restarted, missed = True, _restart(change, wanted, service, checked)
    if not host.dry_run:
        layout.prune(wanted.keep)
    previous = None if change.before is None else change.before.version
    return InstallOutcome(
        change.new.version,
        layout.path(change.new.name),
        previous,
        tuple(host.changed),
        tuple(host.left_out),
        restarted,
        missed,
        host.dry_run,
    )


def _checked(change: _Change) -> CheckedEnvironment:
    host = change.layout.host
    if not host.dry_run:
        return environments.check(change.layout, change.new, CONFIG)
    file = host.at(CONFIG)
    loaded = config.load({}, str(file) if file.exists() else None)
    return CheckedEnvironment(
        change.new.version, loaded.text("lake.path"), loaded.text("agent.spool"), loaded.integer("agent.interval")
    )


def _write_unit(host: Host, wanted: WantedInstall, checked: CheckedEnvironment) -> bool:
    owner = ensure_user(host, wanted.user)
    # systemd makes only /var/lib/fallow by itself, and other service managers none
    if checked.spool.startswith("/") and (owner is not None or host.dry_run):
        host.folder(checked.spool, 0o750, owner)
    return write_unit(host, wanted.prefix, wanted.user, checked)


def _needs_start(
    change: _Change, service: Service | None, wanted: WantedInstall, checked: CheckedEnvironment, now: _Now
) -> bool:
    """Whether the agent is to be started or restarted; where it is not, `left_out` says what to do by hand."""
    host = change.layout.host
    if service is None:
        if host.is_image:
            host.left_out.append(f"the unit is not enabled in the image: systemctl --root={host.root} enable {UNIT}")
        elif now.is_changed:
            what = "restart the agent, which still runs the version before" if now.is_running else "start the agent"
            host.left_out.append(f"there is no systemd here: {what} (fallow agent run)")
        return False
    if host.dry_run:
        return False
    if now.is_changed:
        service.reload_units()
    if change.before is None and not wanted.packaged:
        service.enable()
    if not checked.lake:
        host.left_out.append(f"the agent is not started: set lake.path in {CONFIG}, then systemctl start {UNIT}")
        return False
    if not now.is_running and not service.is_wanted():
        host.left_out.append(f"the agent is not started, for somebody has stopped it: systemctl start {UNIT}")
        return False
    return now.is_changed or not now.is_running


def _restart(change: _Change, wanted: WantedInstall, service: Service, checked: CheckedEnvironment) -> int | None:
    """Has the new agent run; intervals that were missed. On failure undoes everything and raises FallowError."""
    old = running_agent(checked.spool)
    why = _started(service, checked, None if old is None else old.pid, wanted.wait_s)
    if why is None:
        change.layout.host.note("restarted the agent" if old is not None else "started the agent")
        now = running_agent(checked.spool)
        return None if old is None or now is None else now.missed_at_start
    new = change.new.version
    if old is None:
        raise FallowError(f"fallow {new} is installed and started, but {why}", "`fallow doctor` says what is missing")
    change.undo()
    failed = _started(
        service, CheckedEnvironment(old.version, checked.lake, checked.spool, checked.interval_ms), None, wanted.wait_s
    )
    if failed is not None:
        raise FallowError(
            f"fallow {new} does not work here ({why}), and fallow {old.version}, which is in force again, {failed}",
            _log_hint(service),
        )
    raise FallowError(f"fallow {new} does not work here ({why}): fallow {old.version} runs again", _log_hint(service))


def _started(service: Service, checked: CheckedEnvironment, before_pid: int | None, wait_s: float) -> str | None:
    """Starts the agent and waits for an interval of it; why that did not come, None where it did."""
    try:
        service.reload_units()
        service.restart()
    except FallowError as error:
        return error.message
    within_s = max(wait_s, 3 * checked.interval_ms / 1000)
    found = wait_for_interval(service, checked.spool, checked.version, before_pid, within_s)
    return found if isinstance(found, str) else None


def _log_hint(service: Service) -> str:
    return "journalctl -u fallow-agent says why" if isinstance(service, Systemd) else "its log says why"


def uninstall(host: Host, prefix: str, user: str, service: Service | None, *, purge: bool, packaged: bool) -> None:
    """Removes the agent; raises FallowError where one runs that nothing here can stop.

    Settings, spool and user stay, so that a later installation goes on where this one ended, unless `purge` is set.
    """
    layout, spool = Layout(host, prefix), _spool_folder(host)
    with layout.locked():
        if not packaged:
            _stop(host, service, spool)
        waiting = _waiting_rows(host, spool)
        if waiting:
            host.left_out.append(f"{waiting} rows in {spool} are not in the lake{' and are gone' if purge else ' yet'}")
        if not packaged:
            for path in (UNIT_PATH, DROP_IN, SYSUSERS_FILE):
                host.remove(path)
            host.remove_if_empty(DROP_INS)
            if isinstance(service, Systemd) and not host.dry_run:
                service.reload_units()
        if purge:
            _purge(host, user, spool)
        layout.remove()


def _spool_folder(host: Host) -> str:
    """Where the settings put the spool; the usual place where they cannot be read."""
    with contextlib.suppress(FallowError):
        return config.load({}, str(host.at(CONFIG)), {}).text("agent.spool") or HOME
    return HOME


def _stop(host: Host, service: Service | None, spool: str) -> None:
    if host.dry_run:
        return
    if service is not None and host.at(UNIT_PATH).exists():
        service.stop()
    running = None if host.is_image else running_agent(spool)
    if running is not None:
        raise FallowError(
            f"the agent still runs as process {running.pid}, and nothing here can stop it",
            f"stop it (kill {running.pid}) and try again",
        )


def _waiting_rows(host: Host, spool: str) -> int:
    from agent.spool.spool_file import WAITING

    file = host.at(spool) / "spool.sqlite"
    if not file.exists():
        return 0
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db,
    ):
        found = db.execute("SELECT value FROM fact WHERE key = ?", (WAITING,)).fetchone()
        return 0 if found is None else int(found[0])
    return 0


def _purge(host: Host, user: str, spool: str) -> None:
    host.remove("/etc/fallow")
    host.remove(spool)
    if find_user(host, user) is None or host.is_image or not shutil.which("userdel"):
        return
    host.note(f"removed the user {user}")
    if not host.dry_run:
        host.run(["userdel", user], f"removing the user {user}")


MARKER = "/usr/lib/fallow-agent/package.json"
"""A file of the package (deploy/packages/build.sh): for each verb, the command of the package's own tool."""


def refuse_packaged(host: Host, verb: str) -> None:
    """Raises UsageError where a package brought the agent: a unit beside the package's hides it, and outlives a purge."""
    try:
        text = host.at(MARKER).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return
    raise UsageError(
        f"a package installed the agent on this host, so `fallow agent {verb}` leaves it alone",
        f"use the package's own tool: {json.loads(text)[verb]}",
    )


_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")
"""What useradd takes, and the names of directories beside it."""


def run(args: argparse.Namespace) -> int:
    host = _host(args)
    if not args.packaged:
        refuse_packaged(host, args.verb)
    if args.verb == "uninstall":
        return _uninstall(args, host)
    wanted = _wanted(args)
    if args.verb == "upgrade" and _is_absent(host, wanted.prefix):
        raise FallowError(f"no agent is installed in {wanted.prefix}", "install it: fallow agent install")
    service = find_service(host, args.restart)
    done = go_back(host, wanted, service) if getattr(args, "back", False) else install(host, wanted, service)
    show(json.dumps(done.as_json(), indent=2) if args.json else outcome_text(done))
    return 0


def _uninstall(args: argparse.Namespace, host: Host) -> int:
    prefix = _prefix(args)
    uninstall(host, prefix, args.user, find_service(host, None), purge=args.purge, packaged=args.packaged)
    if args.json:
        found = {"changed": host.changed, "left_out": host.left_out, "dry_run": host.dry_run}
        show(json.dumps(found, indent=2))
    else:
        head = "the agent is removed" if host.changed else "no agent is installed here"
        show(_lines(head, host.changed, host.left_out, dry_run=host.dry_run))
    return 0


def _host(args: argparse.Namespace) -> Host:
    root = os.path.realpath(args.root or "/")
    if not os.path.isdir(root):  # noqa: PTH112  # beside realpath, which pathlib spells otherwise
        raise UsageError(f"--root {args.root} is not a folder", "make the image's root first")
    if root == "/" and os.geteuid() != 0 and not args.dry_run:
        raise FallowError(
            f"only root can {args.verb} the agent on this host", f"try: sudo {sys.argv[0]} agent {args.verb}"
        )
    return Host(root, args.dry_run)


def _wanted(args: argparse.Namespace) -> WantedInstall:
    lake = getattr(args, "lake", None)
    if lake is not None:
        Lake.at(lake)  # UsageError for an address that is none
    if args.keep < 0:
        raise UsageError(f"--keep {args.keep} is less than no version", "give 0 or more")
    if not _USER.fullmatch(args.user):
        raise UsageError(f"--user {args.user!r} is no name that a system user can have", "give one such as fallow")
    return WantedInstall(
        prefix=_prefix(args),
        user=args.user,
        source=args.source,
        version=args.version,
        python=args.python,
        lake=lake,
        keep=args.keep,
        wait_s=parse_duration_ms(args.wait) / SECOND_MS,
        packaged=args.packaged,
    )


def _prefix(args: argparse.Namespace) -> str:
    prefix: str = args.prefix.rstrip("/")
    if not prefix.startswith("/"):
        raise UsageError(f"--prefix {args.prefix} is not an absolute path below /", "give one such as /opt/fallow")
    return prefix


def _is_absent(host: Host, prefix: str) -> bool:
    layout = Layout(host, prefix)
    return layout.current() is None and not host.at(layout.bin).is_dir()


def outcome_text(done: InstallOutcome) -> str:
    """What was done, as lines for people."""
    head = f"fallow {done.version} is in force" if done.changed else f"fallow {done.version} is in force already"
    if done.missed_intervals is not None:
        head += f"; the change cost {done.missed_intervals} intervals"
    return _lines(head, done.changed, done.left_out, dry_run=done.dry_run)


def _lines(head: str, changed: Sequence[str], left_out: Sequence[str], *, dry_run: bool) -> str:
    title = "nothing was done; this would be:" if dry_run else head
    return "\n".join([title, *(f"  {each}" for each in changed), *(f"  not done: {each}" for each in left_out)])
