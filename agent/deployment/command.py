"""`fallow agent install|upgrade|uninstall`."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING

from agent.deployment.host import Host
from agent.deployment.install import InstallOutcome, WantedInstall, go_back, install
from agent.deployment.layout import Layout
from agent.deployment.package import refuse_packaged
from agent.deployment.service import find_service
from agent.deployment.uninstall import uninstall
from fallow.clock import SECOND_MS, parse_duration_ms
from fallow.errors import FallowError, UsageError
from fallow.lake import Lake
from fallow.output import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


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
