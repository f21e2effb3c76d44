"""Can the lake be written, listed and cleaned from here?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.doctor.finding import Facts, Finding, error, ok, skipped, warning
from agent.doctor.isolated import Outcome, run_isolated
from agent.doctor.store_probe import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case

_PATIENCE = 4
"""A store may take longer than a driver call: times the timeout of one."""


def look(case: Case) -> Iterator[Finding]:
    """Writes, lists and deletes one tiny file, in a process that can be left behind."""
    lake = case.options.lake
    if not lake:
        yield skipped("no lake is set (--lake, FALLOW_LAKE_PATH or lake.path)")
        return
    timeout_s = case.options.timeout_s * _PATIENCE
    outcome = run_isolated("agent.doctor.store_probe", [lake], case.host.environment, timeout_s)
    facts: Facts = {"location": outcome.last("root") or _shown(lake), "exists": outcome.last("exists")}
    yield _judge(outcome, facts, timeout_s)


def _shown(lake: str) -> str:
    """How to call a lake that did not open: an address that was refused may hold a password, so only its scheme."""
    scheme, separator, _ = lake.partition("://")
    return f"{scheme}://..." if separator else lake


def _judge(outcome: Outcome, facts: Facts, timeout_s: float) -> Finding:
    lake = str(facts["location"])
    local = lake.startswith("/")
    see = f"findmnt -T {lake}" if local else f"fallow doctor --lake {lake}"
    if outcome.ending != "done":
        how = f"does not return within {timeout_s:g} s" if outcome.ending == "hung" else f"ended with {outcome.detail}"
        return error(
            f"{lake}: to {outcome.step or 'open it'} {how}",
            "check the mount and its server" if local else "check the address, the network and the credentials",
            see,
            facts,
        )
    failed = outcome.last("failed")
    if failed:
        return error(failed["message"], failed["hint"], f"ls -ld {lake}" if local else see, facts)
    if outcome.last("nearest") is not None:
        return _not_there(lake, str(outcome.last("nearest")), writable=bool(outcome.last("writable")), facts=facts)
    if not outcome.last("listed"):
        return error(
            f"{lake}: a file that was written there does not show in the listing",
            "check that reads and writes go to the same place (credentials, bucket, replica)",
            see,
            facts,
        )
    if not outcome.last("deleted"):
        return warning(
            f"{lake} can be written and listed, not cleaned ({outcome.last('why')}); left there: {outcome.last('left')}",
            f"the agent needs no deletes, compaction does: allow them, at least below {FOLDER}/",
            see,
            facts,
        )
    return ok(f"{lake} can be written, listed and cleaned", facts)


def _not_there(lake: str, nearest: str, *, writable: bool, facts: Facts) -> Finding:
    if writable:
        return warning(
            f"there is no folder {lake} yet; the first publication makes it",
            "if a file server should be mounted there, mount it first: rows would else fill the local disk",
            f"findmnt -T {nearest}",
            facts,
        )
    return error(
        f"there is no folder {lake}, and this user may not make it in {nearest}",
        "make it, or mount what should be there",
        f"sudo install -d -o $USER {lake}",
        facts,
    )
