"""Writes what docs/ generates from the code: whole pages, and tables in others.

`make docs` runs it; test_schema.py and test_config.py fail when the pages are not current.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.glossary import CONFIDENCE, STATES, STATUSES, TERMS, Term
from analytics.rules import RULES
from dashboard.api.endpoints import ENDPOINTS
from dashboard.api.problems import STATUS_MEANINGS
from fallow.clock import format_duration
from fallow.config import SETTINGS, Setting
from fallow.schema import SCHEMA_VERSION, TABLES, LakeTable
from tests.scraped import mapping_page

if TYPE_CHECKING:
    from analytics.workloads.model import HistoryNeed, Rule
    from dashboard.api.parameters import Parameter

DOCS = Path(__file__).resolve().parents[2] / "docs"
BEGIN = "<!-- settings: written by `make docs` -->"
END = "<!-- settings end -->"


def schema_page() -> str:
    """All of docs/schema.md."""
    head = f"""# The lake's tables

<!-- written by `make docs` from fallow/schema -->

Schema version {SCHEMA_VERSION}. `fallow schema` prints the same in a terminal and `fallow schema --json` for
machines. Files lie at `<lake>/<table>/date=YYYY-MM-DD/host=H/<first>-<last>.parquet`, so that every reader of
Parquet also finds `date` and `host`; a derived table's day is one file over all hosts, `<lake>/<table>/date=YYYY-MM-DD/0-0.parquet`,
and its rows name their host. Null is unknown, 0 is a measured zero. Times are UTC milliseconds.
A column in **bold** belongs to the key: what tells two rows apart.

| table | one row is | |
|---|---|---|""".splitlines()
    head += [f"| [{each.name}](#{each.name}) | {each.row} | {_kind(each)} |" for each in TABLES]
    return "\n".join([*head, *[line for each in TABLES for line in _table(each)], ""])


def rules_page() -> str:
    """All of docs/rules.md."""
    head = """# The rules

<!-- written by `make docs` from analytics/rules -->

One rule, one file, one kind of finding. What a finding is, how sure it is and what becomes of it: [findings.md](findings.md).
`python -m tests.findings.scenarios` tries every rule on some 170 labelled situations and prints precision and recall.

| rule | for | GPUs that are ... |
|---|---|---|""".splitlines()
    head += [f"| [{rule.name}](#{rule.name}) | {rule.category} | {rule.sentence} |" for rule in RULES]
    return "\n".join([*head, *[line for rule in RULES for line in _rule(rule)], ""])


def _rule(rule: Rule) -> list[str]:
    what, _, look_alikes = (sys.modules[rule.find.__module__].__doc__ or "").partition("\n\n")
    lines = ["", f"## {rule.name}"]
    for paragraph in (what, rule.find.__doc__ or "", look_alikes):
        lines += ["", " ".join(paragraph.split())]
    lines.append("")
    lines.append(f"- history: {_needed(rule.history)}")
    return lines + [f"- {name.replace('_', ' ')}: {value}" for name, value in rule.thresholds.items()]


def _needed(history: HistoryNeed) -> str:
    """What has to be observed before the rule can find anything."""
    parts = [] if not history.span_ms else [format_duration(history.span_ms)]
    parts += [] if history.setting is None else [f"findings.{history.setting.removesuffix('_ms')}"]
    parts += [] if not history.gpu_hours else [f"{history.gpu_hours:g} GPU-hours of the fleet"]
    return f"at least {' and '.join(parts)}; until then the rule is listed as waiting"


def settings_table() -> str:
    """The sections of docs/configuration.md that list the settings."""
    lines: list[str] = []
    for section, settings in groupby(SETTINGS, key=lambda setting: setting.section):
        lines += [
            "",
            f"### [{section}]",
            "",
            "| key | variable | default | meaning | reason |",
            "|---|---|---|---|---|",
        ]
        lines += [_setting(each) for each in settings]
    return "\n".join([BEGIN, *lines, "", END])


def configuration_page(current: str) -> str:
    """docs/configuration.md with the settings as they are now."""
    before, _, rest = current.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + settings_table() + after


def api_page(current: str) -> str:
    """docs/api.md with the endpoints, parameters and statuses as they are now."""
    for name, lines in (("endpoints", _endpoints()), ("parameters", _parameters()), ("statuses", _statuses())):
        begin, end = f"<!-- {name}: written by `make docs` -->", f"<!-- {name} end -->"
        before, _, rest = current.partition(begin)
        current = "\n".join([before + begin, "", *lines, "", end]) + rest.partition(end)[2]
    return current


def _endpoints() -> list[str]:
    rows = [
        _line(f"`GET {each.path}`", f"`{each.name}`", each.summary, "rows" if each.has_rows else "one object")
        for each in ENDPOINTS
    ]
    return ["| path | tool | what it answers | `data` |", "|---|---|---|---|", *rows]


def _parameters() -> list[str]:
    every: dict[Parameter, list[str]] = {}
    for endpoint in ENDPOINTS:
        for each in endpoint.parameters:
            every.setdefault(each, []).append(f"`{endpoint.name}`")
    rows = [
        _line(
            f"`{each.name}`",
            each.meaning + (f": {', '.join(f'`{choice}`' for choice in each.choices)}" if each.choices else ""),
            "" if each.default is None else f"`{each.default}`",
            "all" if len(names) == len(ENDPOINTS) else ", ".join(names),
        )
        for each, names in every.items()
    ]
    return ["| name | what | default | of |", "|---|---|---|---|", *rows]


def _statuses() -> list[str]:
    return ["| status | when |", "|---|---|", *[_line(str(status), when) for status, when in STATUS_MEANINGS.items()]]


def glossary_page() -> str:
    """All of docs/glossary.md."""
    lines = """# Glossary

<!-- written by `make docs` from analytics/glossary.py -->

The words of the code, the pages, the messages and these docs. The last column gives the name in the lake's columns,
JSON and flags where that is another one.

""".splitlines()
    for title, terms in (
        ("States", STATES.values()),
        ("Confidence", CONFIDENCE.values()),
        ("Status of a finding", STATUSES.values()),
    ):
        rows = [_line(each.name, each.meaning) for each in terms]
        lines += [f"## {title}", "", "| word | meaning |", "|---|---|", *rows, ""]
    lines += ["## Rules", "", "| rule | finds GPUs that are ... |", "|---|---|"]
    lines += [_line(f"[{rule.name}](rules.md#{rule.name})", rule.sentence) for rule in RULES]
    lines += ["", "## Words", "", "| word | meaning | in data |", "|---|---|---|", *[_term(each) for each in TERMS], ""]
    return "\n".join(lines)


def _term(term: Term) -> str:
    return _line(term.name, term.meaning, f"`{term.column}`" if term.column else "")


def _kind(table: LakeTable) -> str:
    return "derived" if table.derived else "observed"


def _table(table: LakeTable) -> list[str]:
    lines = ["", f"## {table.name}", "", f"{_kind(table).capitalize()}: {table.row}.", ""]
    lines += ["| column | type | unit | step | meaning | source |", "|---|---|---|---|---|---|"]
    for column in table.columns:
        name = f"**{column.name}**" if column.key else column.name
        unit = "" if column.unit == "1" else column.unit
        cells = (name, column.type.value, unit, column.resolution, column.meaning, column.source)
        lines.append(_line(*cells))
    return lines


def _setting(setting: Setting) -> str:
    default = f"`{setting.default}`" if setting.default else ""
    return _line(f"`{setting.key}`", f"`{setting.variable}`", default, setting.meaning, setting.reason)


def _line(*cells: str) -> str:
    return "|" + "|".join(f" {cell.replace('|', '&#124;')} " if cell else " " for cell in cells) + "|"


def main() -> None:
    """Writes all pages."""
    for name, text in {"rules": rules_page(), "glossary": glossary_page(), "schema": schema_page()}.items():
        (DOCS / f"{name}.md").write_text(text, encoding="utf-8")
    (DOCS / "mappings.md").write_text(mapping_page.mappings_page(), encoding="utf-8")
    changed = {"api": api_page, "prometheus": mapping_page.with_summary, "configuration": configuration_page}
    for name, make in changed.items():
        page = DOCS / f"{name}.md"
        page.write_text(make(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
