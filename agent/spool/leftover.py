"""A spool without an agent: of a host that is gone, or of rows that were set aside; published by hand, once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.spool.installation import COPIED_UNTIL, begin_run, new_installation
from agent.spool.publisher import outcome_of
from agent.spool.publisher_arguments import PublisherArguments
from agent.spool.spool import Spool
from fallow.clock import SystemClock
from fallow.errors import FallowError, UsageError

if TYPE_CHECKING:
    from agent.settings import AgentSettings


def publish_leftover(settings: AgentSettings) -> int:
    """Publishes what waits in the spool of the settings under their host's name; returns how many rows that were.

    Raises SpoolError where an agent runs on it, and FallowError where not everything could be published.
    """
    if not Path(settings.spool, "spool.sqlite").is_file():
        raise UsageError(
            f"there is no spool in {settings.spool}", "give the folder that holds a spool.sqlite as --spool"
        )
    spool = Spool(settings.spool)
    try:
        spool.lock()
        # whoever wrote the spool may run elsewhere: this is another installation, and what the lake has of it stays there once
        new_installation(spool, settings.host, "")
        begin_run(spool, SystemClock().now_ms(), "")
        spool.note(COPIED_UNTIL, str(spool.newest_seq()))
        waited = spool.count()
        outcome = outcome_of(
            PublisherArguments(
                settings.spool,
                settings.lake,
                settings.host,
                every_ms=settings.publish_every_ms,
                lake_id=settings.lake_id,
                is_last=True,
            )
        )
        if outcome.exit_code:
            raise FallowError(outcome.lines[-1] if outcome.lines else "the spool could not be published")
        return waited
    finally:
        spool.close()
