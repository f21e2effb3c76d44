"""Installing and upgrading: a new environment beside the old, a check, one switch, and the way back."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.deployment import environment as environments
from agent.deployment.environment import CheckedEnvironment
from agent.deployment.layout import Layout, VersionEnvironment
from agent.deployment.service import UNIT, Systemd, running_agent, wait_for_interval
from agent.deployment.source import find_source
from agent.deployment.unit_files import CONFIG, write_config, write_unit
from agent.deployment.user import ensure_user, find_user
from fallow import config
from fallow.errors import FallowError

if TYPE_CHECKING:
    from agent.deployment.host import Host
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
