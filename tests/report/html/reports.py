"""Reports of real lakes for the page's tests."""

from __future__ import annotations

import argparse
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from analytics.report import report
from analytics.report.model import Asked
from analytics.report.weeks import parse_week
from analytics.scope import Scope
from analytics.window import load_window_ledger, open_inputs

if TYPE_CHECKING:
    from fallow.lake import Lake


def changed(whole: report.Report, **parts: object) -> report.Report:
    """Return the same report with other parts."""
    other = copy(whole)
    other.__dict__.update(parts)
    return other


def report_of(lake: Lake, week: str | None = None, zone: str = "UTC", scope: Scope | None = None) -> report.Report:
    """The report of a lake, of all of it or of one week, or what a scope leaves of it."""
    scope = scope or Scope()
    inputs = open_inputs(argparse.Namespace(lake=lake.root, since=None, until=None, config=None))
    if week is None:
        return report.build_report(
            inputs, load_window_ledger(inputs, or_empty=True), Asked(zone=ZoneInfo(zone), scope=scope)
        )
    found = parse_week(week, ZoneInfo(zone), 0)
    inputs = replace(inputs, window=found.window)
    return report.build_report(
        inputs, load_window_ledger(inputs, or_empty=True), Asked(week=found, zone=ZoneInfo(zone), scope=scope)
    )
