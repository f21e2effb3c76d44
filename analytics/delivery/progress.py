"""What a sender says of each delivery: what went well on standard output, what did not on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from analytics.delivery.deliver import ALREADY, BUSY
from analytics.delivery.model import FAILED, SENT, UNKNOWN
from analytics.language.plain_text import moment, plain
from fallow.units import format_bytes

if TYPE_CHECKING:
    from analytics.delivery.deliver import Result
    from analytics.delivery.journal import Delivery, Standing
    from analytics.delivery.model import Parcel


def tell(result: Result) -> int:
    """Prints one sentence and returns the exit code that the result deserves."""
    what = _named(result.delivery)
    if result.step == SENT:
        print(f"sent {what}")
    elif result.step == ALREADY and result.delivery.purpose == "nudge":
        print(f"not sent {what}: nobody is told twice on one day")
    elif result.step == ALREADY:
        print(f"not sent {what}: it was sent before; --again sends it once more")
    elif result.step == BUSY:
        print(f"not sent {what}: somebody else is sending it")
    elif result.step == FAILED:
        print(f"fallow: could not send {what}: {result.reason}; the next run tries again", file=sys.stderr)
    elif result.step == UNKNOWN:
        print(
            f"fallow: it is not known whether {what} arrived: {result.reason}; ask there, and send it with --again if not",
            file=sys.stderr,
        )
    return int(result.is_failure)


def would(standing: Standing, parcel: Parcel | None = None) -> str:
    """What a dry run says; without a parcel there is nothing to do."""
    what = _named(standing.delivery)
    if parcel is not None:
        parts = ", ".join(part.name for part in parcel.attachments) or "no documents"
        return f"would send {what}: '{plain(parcel.subject, 200)}', {parts}, {format_bytes(parcel.size_bytes)}"
    when = f" on {moment(standing.entry.time_ms)}" if standing.entry else ""
    return f"would not send {what}: {standing.step}{when}"


def _named(delivery: Delivery) -> str:
    return f"{delivery.purpose} {plain(delivery.week)} ({plain(delivery.edition)}) to {plain(delivery.target, 200)}"
