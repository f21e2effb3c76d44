"""`fallow agent run|once|status|release|resume`."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from agent import control_command
from fallow import config
from fallow.clock import SECOND_MS

if TYPE_CHECKING:
    import argparse

    from fallow.config import Config

_CONFIG_HELP = "config file (default: /etc/fallow/fallow.toml)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="run|once|status|release|resume")
    run_parser = verbs.add_parser("run", help="sample until stopped", epilog="example: fallow agent run --lake /srv/lake "
                                  "--spool /var/lib/fallow --interval 10s", allow_abbrev=False)  # fmt: skip
    run_parser.add_argument("--lake", metavar="DIR", help="the lake to publish to: a folder, s3://, gs:// or az://")
    run_parser.add_argument("--spool", metavar="DIR", help="local folder for rows that are not in the lake yet")
    run_parser.add_argument("--interval", metavar="TIME", help="length of one row's interval (default 10s)")
    run_parser.add_argument("--for", dest="run_for", metavar="TIME", help="end by itself after so long")
    run_parser.add_argument("--host", metavar="NAME", help="this host's name in the lake (default: its host name)")
    run_parser.add_argument("--pool", metavar="NAME", help="the group of hosts that this one belongs to")
    run_parser.add_argument("--config", metavar="FILE", help=_CONFIG_HELP)
    once_parser = verbs.add_parser("once", help="look once and print it", epilog="example: fallow agent once --json",
                                   allow_abbrev=False)  # fmt: skip
    once_parser.add_argument("--json", action="store_true", help="machine-readable")
    once_parser.add_argument("--config", metavar="FILE", help=_CONFIG_HELP)
    control_command.add_status_arguments(
        verbs.add_parser("status", help="what the running agent does", allow_abbrev=False,
                         epilog="example: fallow agent status --spool /var/lib/fallow")
    )  # fmt: skip
    control_command.add_release_arguments(
        verbs.add_parser("release", help="let go of the driver, for maintenance", allow_abbrev=False,
                         epilog="example: fallow agent release --for 2h")
    )  # fmt: skip
    control_command.add_resume_arguments(
        verbs.add_parser("resume", help="take the driver up again", allow_abbrev=False,
                         epilog="example: fallow agent resume")
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Does what the verb says."""
    verbs = {
        "run": _run,
        "once": _once,
        "status": control_command.status,
        "release": control_command.release,
        "resume": control_command.resume,
    }
    return verbs[args.verb](args)


def _once(args: argparse.Namespace) -> int:
    from agent.once import look_once, table_text  # not needed by a run
    from agent.settings import host_name

    loaded = config.load({}, args.config)
    look = look_once(loaded.integer("agent.call_timeout") / SECOND_MS, host_name(loaded), loaded)
    print(json.dumps(look.as_json(), indent=2) if args.json else table_text(look))
    return 0


def _run(args: argparse.Namespace) -> int:
    # here, so that `fallow agent status` does not load the whole agent
    from agent import logs
    from agent.settings import AgentSettings
    from agent.spool.spool import Spool
    from agent.supervise.supervisor import Supervisor

    def load() -> tuple[Config, AgentSettings]:
        loaded = config.load(_flags(args), args.config)
        logs.configure(loaded.text("agent.log_format"), loaded.text("agent.log_level"))
        return loaded, AgentSettings.from_config(loaded, args.run_for)

    spool = Spool(load()[1].spool, for_agent=True)
    try:
        supervisor = Supervisor(load, spool)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: supervisor.stop())
        signal.signal(signal.SIGHUP, lambda *_: supervisor.reload())
        supervisor.run()
    finally:
        spool.close()
    return 0


def _flags(args: argparse.Namespace) -> dict[str, str | None]:
    return {
        "lake.path": args.lake,
        "agent.spool": args.spool,
        "agent.interval": args.interval,
        "agent.host": args.host,
        "agent.pool": args.pool,
    }
