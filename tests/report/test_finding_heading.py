"""The heading of a finding: hosts by name as long as they are few, and the mark of simulated ones among others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from analytics.tables.finding_heading import heading
from tests.report.html.reports import report_of

if TYPE_CHECKING:
    from fallow.lake import Lake


@pytest.mark.parametrize(
    ("hosts", "where"), [("", ""), ("a", " on a"), ("a+b+c", " on a, b, c"), ("a+b+c+d", " on 4 hosts")]
)
def test_a_few_hosts_are_named(full: Lake, hosts: str, where: str) -> None:
    finding = replace(report_of(full, "2026-W40").review.shown[0], host=hosts, gpus=("x", "y"), simulated=False)
    assert str(heading(finding)) == f"2 GPUs{where} {finding.sentence}"


def test_simulated_ones_are_marked_where_others_are_not(full: Lake) -> None:
    report = report_of(full, "2026-W40")
    finding = replace(report.review.shown[0], simulated=True)
    gpus = report.ledger.summary.totals.gpus
    assert str(heading(finding)).endswith(" (simulated)")
    assert str(heading(finding, replace(report.review, simulated_gpus=gpus - 1))).endswith(" (simulated)")
    assert not str(heading(finding, replace(report.review, simulated_gpus=gpus))).endswith(" (simulated)")
