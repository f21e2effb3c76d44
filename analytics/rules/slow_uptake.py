"""GPUs that were added and are slowly taken into use.

Look-alikes that it leaves alone: a replaced or moved card, an agent that was installed later, a ramp of a week, cards
added the day before yesterday.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.language.sentences import Share, tr
from analytics.states import UNUSED
from analytics.workloads import waste
from analytics.workloads.commands import watch_command
from analytics.workloads.finding_parts import counted, label
from analytics.workloads.ledger_rows import mean_of, whole_number
from analytics.workloads.model import Context, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.uptake import RAMP_SHARE, START_MS, added_gpus, ramps
from analytics.workloads.window_end import allocated_by_count, counted_gpus, still_going
from fallow.clock import DAY_MS, HOUR_MS, utc_day

FIRST_USE_MAX_DAYS = 7
RAMP_MAX_DAYS = 14
FLEET_MEAN_MIN = 0.1


def slow_uptake_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per host and day of arrival, for GPUs first observed inside the lake's history."""
    added = added_gpus(context)
    if added.is_empty():
        return
    slow = _slow(context, added)
    inside = context.inside.segments.filter(pl.col("state").is_in(UNUSED))
    for (host, day), gpus in slow.group_by("host", "day", maintain_order=True):
        rows = inside.filter(pl.col("gpu").is_in(gpus["gpu"].implode()))
        if not rows.is_empty():
            unused = gpus.filter(pl.col("first_use").is_null())
            # an allocation that only counts GPUs may use any free GPU of its host
            uncounted = (pl.col("state") == "free") & ~pl.col("host").is_in(list(counted_gpus(context)))
            free = still_going(context, rows.filter(uncounted & pl.col("user_source").is_null()))
            fleet = gpus["fleet_mean"][0]
            yield Candidate(
                rows,
                subject=f"added {utc_day(day * DAY_MS)}",
                numbers={
                    "gpus_added": gpus["added"][0],
                    "gpus_slow": gpus.height,
                    "gpus_without_any_use": unused.height,
                    "first_use_after_h": gpus.select(
                        ((pl.col("first_use") - pl.col("first_seen")) / HOUR_MS).max()
                    ).item(),
                    "ramp_after_days": gpus.select((pl.col("ramp_day") - pl.col("day")).max()).item(),
                    "days_since_added": (context.until_ms - whole_number(gpus, pl.col("first_seen").min())) / DAY_MS,
                    "active_share_since": mean_of(gpus, "active_share"),
                    "active_share_of_the_fleet": fleet,
                },
                failed=[
                    [tr("no GPU was present before, so half of the fleet's mean is not known")]
                    if fleet is None
                    else [],
                    allocated_by_count(context, [host]),
                ],
                next_command=watch_command(host),
                reclaimable_gpus=free,
                since_ms=whole_number(gpus, pl.col("first_seen").min()),
                gpus=gpus["gpu"].to_list(),
                host=host,
            )


SLOW_UPTAKE = Rule(
    name="slow_uptake",
    category="demand",
    sentence=of_gpus("slowly taken into use since it was added", "slowly taken into use since they were added"),
    kinds=(waste.SURPLUS,),
    precedence=20,
    per_host=True,
    history=HistoryNeed(START_MS + FIRST_USE_MAX_DAYS * DAY_MS),
    thresholds={
        "first use": f"no process within {FIRST_USE_MAX_DAYS} days of being first seen (as `never_used`)",
        "ramp": (
            f"no day with {RAMP_SHARE:.0%} of the fleet's mean activity within {RAMP_MAX_DAYS} days (half the mean; two"
            " weeks are ours)"
        ),
        "fleet": (
            f"the ramp is judged where the GPUs that were there before were active for at least {FLEET_MEAN_MIN:.0%} of"
            " the time (ours)"
        ),
        "added": (
            f"first seen more than {START_MS // HOUR_MS} h after the lake's first row (what was there from the start is"
            " not new)"
        ),
    },
    labels=(
        counted("gpus_added", "{number} {GPU|GPUs} added"),
        label("gpus_slow", "{value} GPUs slowly taken into use"),
        label("gpus_without_any_use", "{value} GPUs never used"),
        label("first_use_after_h", "first use within {value} h"),
        counted(
            "ramp_after_days",
            "half of the fleet's mean activity reached within {number} {day|days}",
        ),
        label("days_since_added", "added {value} days ago"),
        label("active_share_since", "busy for {value} of the time since", Share),
        label("active_share_of_the_fleet", "the other GPUs of the fleet for {value}", Share),
    ),
    find=slow_uptake_findings,
)


def _slow(context: Context, added: pl.DataFrame) -> pl.DataFrame:
    """Return GPUs that were slow and still were at the start of the window, with the columns of `ramps`."""
    judged = ramps(context, added)
    since_ms, until_ms = context.since_ms, context.until_ms
    used = pl.col("first_use").fill_null(until_ms)
    late = (used - pl.col("first_seen") >= FIRST_USE_MAX_DAYS * DAY_MS) & (used >= since_ms)
    # the day on which half of the fleet's mean was reached has to be over to be judged
    ramped_ms = ((pl.col("ramp_day") + 1) * DAY_MS).fill_null(until_ms)
    judgeable = pl.col("fleet_mean") >= FLEET_MEAN_MIN
    crawling = judgeable & (ramped_ms - pl.col("first_seen") > RAMP_MAX_DAYS * DAY_MS) & (ramped_ms > since_ms)
    return judged.filter(late | crawling)
