"""The arguments of `fallow agent install|upgrade|uninstall`, apart from what they do, so that no other verb loads that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

VERBS = ("install", "upgrade", "uninstall")


def add_verbs(verbs: Any) -> None:
    """Adds them to the verbs of `fallow agent`."""
    install = verbs.add_parser(
        "install",
        help="install the agent on this host",
        allow_abbrev=False,
        epilog="example: sudo fallow agent install --from wheels/ --lake /srv/fallow/lake",
    )
    upgrade = verbs.add_parser(
        "upgrade",
        help="go to another version, and back where it does not work",
        allow_abbrev=False,
        epilog="example: sudo fallow agent upgrade --from wheels/",
    )
    uninstall = verbs.add_parser(
        "uninstall",
        help="remove the agent; settings and spool stay",
        allow_abbrev=False,
        epilog="example: sudo fallow agent uninstall",
    )
    for each in (install, upgrade):
        _add_source(each)
    install.add_argument(
        "--lake", metavar="PLACE", help="lake.path for the settings that are written where there are none"
    )
    upgrade.add_argument("--back", action="store_true", help="go back to the newest other version that is kept")
    uninstall.add_argument("--purge", action="store_true", help="remove settings, spool and user too")
    for each in (install, upgrade, uninstall):
        each.add_argument(
            "--user", metavar="NAME", default="fallow", help="the user that the agent runs as (default fallow)"
        )
        each.add_argument(
            "--prefix", metavar="DIR", default="/opt/fallow", help="where versions go (default /opt/fallow)"
        )
        each.add_argument("--root", metavar="DIR", help="work on the image in this folder, without systemd")
        each.add_argument("--packaged", action="store_true", help="leave unit, user and settings to a package")
        each.add_argument("--dry-run", action="store_true", help="only say what would be done")
        each.add_argument("--json", action="store_true", help="machine-readable")


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="source",
        metavar="SOURCE",
        default="index",
        help="a wheel, a folder of wheels, or `index`: pip's package index (default)",
    )
    parser.add_argument(
        "--version", metavar="VERSION", help="which version, where SOURCE has several (default: the newest)"
    )
    parser.add_argument(
        "--python", metavar="PROGRAM", help="the Python to make the environment with (default: this one)"
    )
    parser.add_argument("--keep", metavar="N", type=int, default=2, help="how many older versions to keep (default 2)")
    parser.add_argument(
        "--wait",
        metavar="TIME",
        default="90s",
        help="how long the new agent may take to close an interval (default 90s)",
    )
    parser.add_argument("--restart", metavar="COMMAND", help="what restarts the agent where that is not systemd")
