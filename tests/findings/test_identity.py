"""A finding's id: the same next week, different for anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.rules import RULES
from tests.findings.conftest import BUSY, DAY, FREE, HELD, HOUR, findings, idle_findings, only
from tests.ledger.recording import Recording
from tests.ledger.rows import GB, allocation, device, fill, processes, samples

if TYPE_CHECKING:
    from analytics.workloads.model import Finding


def test_a_never_used_finding_keeps_its_id_when_a_gpu_comes_into_use_or_is_reserved(site: Recording) -> None:
    rows = samples("a", 0, 14 * DAY, every_s=600, **FREE) + samples("b", 0, 8 * DAY, every_s=600, **FREE)
    rows += samples("b", 8 * DAY, 14 * DAY, every_s=600, **BUSY)
    fill(site, rows, allocations=[allocation("a", 9 * DAY, None)])
    before, after = only(site, until="2026-11-27"), only(site, since="2026-11-30")
    assert (before.gpus, after.gpus) == (("a", "b"), ("a",))
    assert (before.user, after.user) == (None, "bob")
    assert before.finding_id == after.finding_id


def test_the_order_is_the_most_gpu_hours_first_and_then_the_id(site: Recording) -> None:
    fill(site, [row for gpu in "abcd" for row in samples(gpu, 0, (1 + ord(gpu) % 2) * 2 * HOUR, **HELD)])
    found = idle_findings(site)
    assert [each.gpu_hours for each in found] == [4.0, 4.0, 2.0, 2.0]
    assert list(found) == sorted(found, key=lambda each: (-each.gpu_ms, each.finding_id))


HOSTS = st.sets(st.sampled_from(["h1", "h2", "h3"]), min_size=1)
WEEK = 7 * DAY
RULE_OF = {rule.name: rule for rule in RULES}


@settings(max_examples=4)
@given(HOSTS, HOSTS, st.sampled_from([5.0, 90.0]))
def test_a_subject_keeps_its_id_on_however_many_hosts_it_is(before: set[str], after: set[str], util: float) -> None:
    """A user's work moves between hosts from one week to the next; a GPU of each host is held."""
    site = Recording()
    for host in sorted(before | after):
        rows, lists, devices = [], [], []
        for gpu, value in ((f"GPU-{host}-w", util), (f"GPU-{host}-i", 0.0)):
            for start, week in ((0, before), (WEEK, after)):
                values = (
                    (HELD | {"gpu_util_pct": value, "gpu_util_max_pct": value, "mem_used_bytes": 20 * GB})
                    if host in week
                    else FREE
                )
                rows += samples(gpu, start, start + WEEK, every_s=1800, **values)
                if host in week:
                    lists += processes(gpu, *range(start, start + WEEK, 1800), every_s=1800)
            devices.append(device(gpu))
        fill(site, rows, lists, devices=devices, host=host)
    first = findings(site, until="2026-11-26")
    second = findings(site, since="2026-11-27")
    ids = [_by_subject(found) for found in (first, second)]
    for found, named in zip((first, second), ids, strict=True):
        assert len({each.finding_id for each in found}) == len(named) == len(found)
    assert {name for name, *_ in ids[0]} >= {"held"} | ({"low_efficiency", "compute_oversized"} if util < 50 else set())
    for subject in ids[0].keys() & ids[1].keys():
        assert ids[0][subject] == ids[1][subject]
    assert {host for name, host, _ in ids[1] if name == "held"} == after
    for name, host, _ in (*ids[0], *ids[1]):
        assert bool(host) == RULE_OF[name].per_host


def _by_subject(found: tuple[Finding, ...]) -> dict[tuple[str, str, str], str]:
    """Ids by rule, the host where the rule looks at each for itself, and subject."""
    return {
        (each.rule, each.host if RULE_OF[each.rule].per_host else "", each.subject): each.finding_id for each in found
    }
