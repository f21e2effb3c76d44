"""docs/metrics.md: catalogues and rules fill its tables (`python -m tests.agent.test_metrics_docs`); examples hold."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from dashboard.metrics import FAMILIES as OF_PAGES
from tests.conftest import REPOSITORY
from tests.deploy.queries import OF_AGENTS, RULES, rules

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fallow.exposition import Family

PAGE = REPOSITORY / "docs" / "metrics.md"
_MARK = "<!-- {name}: written by `python -m tests.agent.test_metrics_docs` -->"


def tables() -> dict[str, str]:
    """What stands between the marks of the page, by the name in them."""
    return {"metrics": families_table(OF_AGENTS), "dashboard metrics": families_table(OF_PAGES), "rules": rules_table()}


_PLAIN = ("DCGM_FI_", "fallow_host_", "fallow_process_", "fallow_serving_", "fallow_agent_", "fallow_spool_")
"""Prefixes of names that explain themselves: the page lists them without the meaning that `# HELP` of a scrape has."""


def families_table(families: Sequence[Family]) -> str:
    """Return plain names as lists by their beginning, and one line per other name, in the order of a scrape."""
    by_name = {family.name: family for family in reversed(families)}
    names = dict.fromkeys(family.name for family in families)
    lists = [[f"`{name}`" for name in names if name.startswith(beginning)] for beginning in _PLAIN]
    own = (_line(by_name[name]) for name in names if not name.startswith(_PLAIN))
    plain = [text for each in lists if each for text in (f"{', '.join(each)}.", "")]
    return "\n".join([*plain, "| name | meaning |", "|---|---|", *own])


def rules_table() -> str:
    """What the recording rules make, and the alerts with the time after which each one warns."""
    alerts = ", ".join(f"{each['alert']} ({each.get('for', 'at once')})" for each in rules() if "alert" in each)
    names = ", ".join(f"`{each['record']}`" for each in rules() if "record" in each)
    return f"Recorded: {names}.\n\nAlerts, and how long each waits: {alerts}."


_UNIT_IN_NAME = {"s": "seconds", "bytes/s": "bytes_per_second", "1/s": "per_second", "GPU-hours": "gpu_hours"}


def _line(family: Family) -> str:
    """The name and the meaning, with the unit where the name lacks it."""
    is_plain = family.unit in ("1", "0 or 1") or _UNIT_IN_NAME.get(family.unit, family.unit) in family.name
    return f"| `{family.name}` | {family.meaning}{'' if is_plain else f' ({family.unit})'} |"


def written(page: str) -> str:
    """The page with the tables as they are now."""
    for name, table in tables().items():
        begin, end = _MARK.format(name=name), f"<!-- {name} end -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n\n{table}\n\n{end}{rest.partition(end)[2]}"
    return page


def test_the_tables_are_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run python -m tests.agent.test_metrics_docs"


def test_every_name_in_the_text_is_a_name() -> None:
    names = {family.name for family in (*OF_AGENTS, *OF_PAGES)}
    page = PAGE.read_text(encoding="utf-8")
    mentioned = set(re.findall(r"(?<![\w:])(?:fallow_(?!agent\b)\w+|DCGM_FI_\w+)", page))
    assert mentioned - names == set()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (package prometheus)")
def test_the_examples_are_what_prometheus_reads(tmp_path: Path) -> None:
    agents, pages = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "fallow.token").write_text("secret")
    (tmp_path / "fallow-ca.crt").touch()
    both = agents + pages.removeprefix("scrape_configs:\n") + f"rule_files: [{RULES}]\n"
    (tmp_path / "prometheus.yml").write_text(both.replace("/etc/prometheus/", f"{tmp_path}/"))
    command = ["promtool", "check", "config", "prometheus.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
