"""What findings add up to: a GPU once, hours and money per rule only, and how evidence reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analytics.decide.totals import most_first, totals
from analytics.rules import RULES
from analytics.tables.finding_heading import evidence
from analytics.tables.finding_list import TOTALS_COLUMNS
from analytics.tables.table import record
from analytics.workloads.model import Confidence, Evidence, Finding
from tests.findings.conftest import FREE, HELD, HOUR, reviewed
from tests.ledger.recording import Recording
from tests.ledger.rows import device, fill, processes, samples


@pytest.fixture(scope="module")
def shared() -> tuple[Finding, ...]:
    """Ann held both GPUs for two hours, bob one of them for one hour after."""
    held = [*samples("a", 0, 3 * HOUR, every_s=300, **HELD), *samples("b", 0, 2 * HOUR, every_s=300, **HELD)]
    rows = [*held, *samples("b", 2 * HOUR, 3 * HOUR, every_s=300, **FREE)]
    lists = [row for gpu in "ab" for row in processes(gpu, *range(0, 2 * HOUR, 300), every_s=300, user="ann", pid=1)]
    lists += processes("a", *range(2 * HOUR, 3 * HOUR, 300), every_s=300, user="bob", pid=1)
    found = reviewed(fill(Recording(), rows, lists, devices=[device("a"), device("b")])).findings
    return tuple(replace(each, confidence=Confidence(("one condition",))) for each in found)


def test_a_gpu_counts_once_and_a_rules_hours_add_up(shared: tuple[Finding, ...]) -> None:
    assert [(each.user, each.gpu_hours) for each in shared] == [("bob", 1.0), ("ann", 4.0)]
    sums = totals(shared)
    assert not {"gpu_hours", "cost"} & set(record(TOTALS_COLUMNS, sums)), (
        "over all rules there is no sum of hours or money"
    )
    assert (sums.findings, sums.gpus, sums.gpus_to_take, sums.gpus_to_take_surely) == (2, 2, 1, 0)
    own = sums.rules["held"]
    assert (own.findings, own.gpus, own.gpus_to_take, own.gpu_hours) == (2, 2, 1, 5.0)
    assert own.cost == pytest.approx(sum(each.cost or 0.0 for each in shared))
    assert (own.currency, own.unpriced, sums.unpriced) == ("USD", 0, 0)


def test_what_has_no_price_is_not_in_the_sum_and_is_counted(site: Recording) -> None:
    lists = processes("a", *range(0, 2 * HOUR, 300), every_s=300)
    fill(site, samples("a", 0, 2 * HOUR, every_s=300, **HELD), lists)
    sums = totals([replace(each, confidence=Confidence(())) for each in reviewed(site).findings])
    assert (sums.unpriced, sums.rules["held"].cost, sums.rules["held"].currency) == (1, None, None)


def test_what_can_be_taken_comes_before_what_costs_more(shared: tuple[Finding, ...]) -> None:
    bob, ann = shared
    assert (ann.cost or 0) > (bob.cost or 0)
    assert most_first([ann, bob]) == (bob, ann)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("workloads", 1, "1 job"),
        ("workloads", 3, "3 jobs"),
        ("segment_count", 1, "in 1 interval"),
        ("segment_count", 2, "in 2 intervals"),
        ("gpus_held_now", 0, "none of the 5 GPUs still held at the end of the window"),
        ("gpus_reserved_now", 0, "none of the 5 GPUs still allocated at the end of the window"),
        ("gpus_reserved_now", 4, "4 of 5 GPUs still allocated without a process at the end of the window"),
        ("gpus_held_now", 2, "2 of 5 GPUs still held at the end of the window"),
        ("mem_used_max_bytes", 0, "no memory in use"),
        ("mem_used_max_bytes", 2**30, "memory in use up to 1.0 GiB"),
        ("mem_variation", 0.0004, "memory varies by less than 0.1 %"),
        ("mem_variation", 0.001, "memory varies by 0.1 %"),
        ("period_cv", 0.0, "intervals vary by less than 0.1 %"),
        ("period_cv", 0.036, "intervals vary by 3.6 %"),
        ("quota_gpus", 32.0, "a quota of 32 GPUs"),
        ("quota_unused_gpus", 2.5, "2.5 of the quota not allocated"),
        ("gpus_added", 1, "1 GPU added"),
        ("user_source", "process+allocation", "source of the user: process+allocation"),
        ("cause", "heat", "slowed down by heat"),
        ("kind", "quota", "the quota far exceeds the team's allocations"),
        ("commands", "heat", "commands heat"),
        ("disk_read_mean_bytes_per_s", 2.0 * 2**30, "2.0 GiB/s read from disks"),
        (
            "processes",
            "job ended+parent gone",
            "every process is left over from a job that has ended+without its parent process",
        ),
        ("aligned_hours", 40, "observed side by side for 40 h"),
        (
            "gpu_util_together_bursts_p95_pct",
            42.0,
            "combined utilization of at most 42.0 % in 95 % of the samples (limit: 80 %)",
        ),
        ("gpus_with_sm_activity", 0, "SM activity not measured"),
        ("gpus_with_sm_activity", 2, "SM activity measured on 2 of 5 GPUs"),
        ("power_mean_w", 7.25, "mean power 7.2 W"),
        ("a_new_number", 0.5, "a new number 0.5"),
    ],
)
def test_numbers_in_words(name: str, value: float, text: str) -> None:
    """Each by the label of the rule that has the key, `held` for those of several rules."""
    rule = next((each.name for each in RULES if any(name in label.keys for label in each.labels)), "held")
    said, named = Evidence(0, 1, {name: value}), (rule, "reclaim", "", "", tuple("abcde"), "", "", None)
    assert evidence(Finding(*named, 0, 0.0, None, Confidence(()), (), said, "", simulated=False)) == text


def test_findings_of_low_confidence_are_in_no_sum(shared: tuple[Finding, ...]) -> None:
    bob, ann = shared
    ann_both = replace(ann, reclaimable_gpus=("a", "b"), confidence=Confidence(()))
    bob_one = replace(bob, reclaimable_gpus=("b", "c"), confidence=Confidence(("one", "two")))
    sums = totals([ann_both, bob_one])
    assert (sums.findings, sums.low_findings, sums.gpus_to_take, sums.gpus_to_take_surely) == (1, 1, 2, 2)
    assert record(TOTALS_COLUMNS, sums)["reclaimable_gpus"] == 2
