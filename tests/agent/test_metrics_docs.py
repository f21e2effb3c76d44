"""docs/metrics.md: its table is written from the catalogue (`python -m tests.agent.test_metrics_docs`), its examples hold."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from agent.metrics import catalogue
from fallow.exposition import Family
from tests.agent.metric_families import FAMILIES
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

PAGE = REPOSITORY / "docs" / "metrics.md"
BEGIN = "<!-- metrics: written by `python -m tests.agent.test_metrics_docs` -->"
END = "<!-- metrics end -->"


def table() -> str:
    """One line per name, in the order of a scrape."""
    names = dict.fromkeys(family.name for family in FAMILIES)
    lines = [_line([family for family in FAMILIES if family.name == name]) for name in names]
    return "\n".join(["| name | type | unit | meaning | source |", "|---|---|---|---|---|", *lines])


def _line(families: list[Family]) -> str:
    first = families[0]
    sources = ", ".join(
        f"`{family.source}`" if re.fullmatch(r"\w+\.\w+", family.source) else family.source for family in families
    )
    unit = "" if first.unit == "1" else first.unit
    cells = (f"`{first.name}`", first.kind, unit, first.meaning, sources)
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def written(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def test_the_table_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run python -m tests.agent.test_metrics_docs"


def test_every_family_of_the_catalogue_is_in_the_table() -> None:
    named = [each for value in vars(catalogue).values() for each in (value if isinstance(value, tuple) else (value,))]
    assert [each.name for each in named if isinstance(each, Family) and each not in FAMILIES] == []


def test_every_name_in_the_text_is_a_name() -> None:
    names = {family.name for family in FAMILIES}
    page = PAGE.read_text(encoding="utf-8")
    mentioned = set(re.findall(r"\b(?:fallow_(?!agent\b)\w+|DCGM_FI_\w+)", page))
    assert mentioned - names == set()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (package prometheus)")
def test_the_examples_are_what_prometheus_reads(tmp_path: Path) -> None:
    scrape, rules = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "fallow.token").write_text("secret")
    (tmp_path / "fallow-ca.crt").touch()
    (tmp_path / "rules.yml").write_text(rules)
    (tmp_path / "prometheus.yml").write_text(scrape.replace("/etc/prometheus/", f"{tmp_path}/"))
    for what, file in (("config", "prometheus.yml"), ("rules", "rules.yml")):
        done = subprocess.run(
            ["promtool", "check", what, file], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
