"""A spool without an agent: of a host that is gone, or of rows that were set aside; published by hand, once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.spool.installation import COPIED_UNTIL, begin_run, identity_of, new_installation
from agent.spool.publisher import outcome_of
from agent.spool.publisher_arguments import PublisherArguments
from agent.spool.spool import Spool
from fallow import schema
from fallow.clock import SystemClock
from fallow.errors import FallowError, UsageError
from fallow.host_identity import INSTALL_KEY
from fallow.lake import Lake

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
        _check_apart(spool, settings)
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


def _check_apart(spool: Spool, settings: AgentSettings) -> None:
    """Raises FallowError where another installation has published under the name while the waiting rows were recorded.

    They would be doubled, or hidden by a file whose numbers reach over theirs.
    """
    from agent.spool.merging import facts_and_times  # arro3, which is loaded for publishing anyway

    lake, own = Lake.at(settings.lake), identity_of(spool, settings.host).install
    for stretch in spool.stretches_until(spool.newest_seq()):
        first_ms, last_ms = spool.span_ms(stretch)
        for file in lake.files(stretch.table, hosts=[settings.host], dates=[stretch.date]):
            meets = file.first_seq <= stretch.last_seq and stretch.first_seq <= file.last_seq
            facts, times = facts_and_times(lake.read(file), schema.table(stretch.table))
            if facts.get(INSTALL_KEY) != own and (meets or any(first_ms <= each <= last_ms for each in times)):
                raise FallowError(
                    f"another agent has published as {settings.host} while rows of {settings.spool} were recorded",
                    "give another --host: under this name they would be there twice, or hidden",
                )
