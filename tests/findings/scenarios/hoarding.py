"""Teams that are granted or take far more than they use, and teams with short or shared peaks."""

from __future__ import annotations

from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import situation, train

HOUR = 3600.0
DAYS = 28
TEAMS = "kind,name,team,quota_gpus\nuser,ann,vision,{}\nuser,bob,language,{}\n"


def quota_of_another_year(fleet: Fleet) -> None:
    """Sixteen GPUs were granted for a project that is long over; two are in use."""
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:6], "bob", job="1002")


def team_that_never_came(fleet: Fleet) -> None:
    """A quota of four, and not one process in four weeks."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:3], "ann")


def takes_eight_uses_one(fleet: Fleet) -> None:
    """Eight GPUs are always taken, lest somebody else had them; one of them works."""
    gpus = fleet.host("h1", H100, 8)
    fleet.run(gpus[:1], "ann", util=90.0, mem_gb=60)
    fleet.run(gpus[1:], "ann", mem_gb=5)


def full_on_two_days_a_week(fleet: Fleet) -> None:
    """The whole quota is needed on Mondays and Tuesdays only."""
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:], "ann", fleet.weekdays & fleet.every(7 * 24, 48, offset_h=72), job="1002")


def most_of_the_quota(fleet: Fleet) -> None:
    """Five of eight: room to breathe."""
    train(fleet, fleet.host("h1", H100, 5), "ann")


def no_quota_on_file(fleet: Fleet) -> None:
    """The owners file names the team, and no quota."""
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[0], "ann")
    train(fleet, gpus[1:], "bob", job="1002")


def first_week_of_a_team(fleet: Fleet) -> None:
    """One week of history: four weeks of demand are not known."""
    train(fleet, fleet.host("h1", H100, 2), "ann")


REST = "standing_surplus never_used low_efficiency"
IDLE = "held co_location memory_oversized mig_fit compute_oversized imbalance partial_use wind_down"

SCENARIOS = (
    situation(quota_of_another_year, days=DAYS, interval_s=HOUR, fires="hoarding", may=REST, lists={"money.owners": TEAMS.format(16, 4)}),
    situation(team_that_never_came, days=DAYS, interval_s=HOUR, fires="hoarding", may=REST, lists={"money.owners": TEAMS.format(4, 4)}),
    situation(
        takes_eight_uses_one, days=DAYS, interval_s=HOUR, fires="hoarding", may=f"{REST} {IDLE}", lists={"money.owners": TEAMS.format(8, "")}
    ),
    situation(full_on_two_days_a_week, days=DAYS, interval_s=HOUR, may=REST, look_alike_of="hoarding", lists={"money.owners": TEAMS.format(8, "")}),
    situation(most_of_the_quota, days=DAYS, interval_s=HOUR, look_alike_of="hoarding", lists={"money.owners": TEAMS.format(8, "")}),
    situation(no_quota_on_file, days=DAYS, interval_s=HOUR, look_alike_of="hoarding", lists={"money.owners": TEAMS.format("", "")}),
    situation(first_week_of_a_team, days=7, interval_s=HOUR, look_alike_of="hoarding", lists={"money.owners": TEAMS.format(32, "")}),
)  # fmt: skip
