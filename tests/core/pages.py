"""Writes what docs/ generates from the code: whole pages, and tables in others.

`make docs` runs it; tests fail where a page is not current.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from analytics.capacity.causes import CAUSES
from analytics.glossary import CONFIDENCE, STATES, STATUSES, TERMS, Term
from analytics.rules import RULES
from analytics.workloads.confidence import CONDITIONS
from dashboard.api.endpoints import ENDPOINTS
from dashboard.api.problems import STATUS_MEANINGS
from fallow.clock import format_duration
from fallow.config import SETTINGS
from tests.scraped import mapping_page

if TYPE_CHECKING:
    from analytics.workloads.rule import HistoryNeed
    from dashboard.api.parameters import Parameter

DOCS = Path(__file__).resolve().parents[2] / "docs"
DEFAULTS = {setting.name: setting.default for setting in SETTINGS}


def rules_page() -> str:
    """All of docs/rules.md."""
    head = """# The rules

<!-- written by `make docs` from analytics/rules -->

A rule finds one kind of waste; [recommendations](recommendations.md) explains what becomes of a finding. \
`fallow rules NAME` shows what the rule finds, its look-alikes, and every
threshold with its source, as does the file behind each name; \
`fallow rules --format md --out rules.md` writes all of them.

| rule | finds GPUs that are ... | for | history needed |
|---|---|---|---|""".splitlines()
    rows = (
        _line(
            f"[`{rule.name}`](../analytics/rules/{rule.name}.py)",
            rule.sentence,
            rule.category.replace("_", " "),
            _needed(rule.history),
        )
        for rule in RULES
    )
    return "\n".join([*head, *rows, ""])


def _needed(history: HistoryNeed) -> str:
    """What has to be observed before the rule can find anything."""
    parts = [] if not history.span_ms else [format_duration(history.span_ms)]
    if history.setting is not None:
        name = f"findings.{history.setting.removesuffix('_ms')}"
        parts.append(f"`{name}` ({DEFAULTS[name]})")
    parts += [] if not history.gpu_hours else [f"{history.gpu_hours:g} GPU-hours"]
    return " and ".join(parts)


def planning_page(current: str) -> str:
    """docs/planning.md with the causes of queue waits as they are now."""
    rows = [_line(f"{cause.title} (`{cause.name}`)", cause.means) for cause in CAUSES]
    return _with_lines(current, "causes", ["| cause | while the job waited |", "|---|---|", *rows])


def recommendations_page(current: str) -> str:
    """docs/recommendations.md with the conditions of confidence as they are now."""
    rows = [_line(*each) for each in CONDITIONS]
    return _with_lines(
        current, "conditions", ["| condition | what is wanted | why, and from where |", "|---|---|---|", *rows]
    )


def _with_lines(page: str, name: str, lines: list[str]) -> str:
    """The page with these lines between the marks of that name."""
    begin, end = f"<!-- {name}: written by `make docs` -->", f"<!-- {name} end -->"
    before, _, rest = page.partition(begin)
    return "\n".join([before + begin, "", *lines, "", end]) + rest.partition(end)[2]


def api_page(current: str) -> str:
    """docs/api.md with the endpoints, parameters and statuses as they are now."""
    for name, lines in (("endpoints", _endpoints()), ("parameters", _parameters()), ("statuses", _statuses())):
        current = _with_lines(current, name, lines)
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

The words of the commands, the pages, the messages and these docs; `fallow glossary --all` prints them. The last column
is the name in data and flags where that is another one. The rules have [a page of their own](rules.md).

""".splitlines()
    for title, terms in (
        ("States", STATES.values()),
        ("Confidence", CONFIDENCE.values()),
        ("Status of a finding", STATUSES.values()),
        ("Words", TERMS),
    ):
        rows = [_term(each) for each in terms]
        has_names = any(each.label or each.column for each in terms)
        head = ["| word | meaning | in data |", "|---|---|---|"] if has_names else ["| word | meaning |", "|---|---|"]
        lines += [f"## {title}", "", *head, *rows, ""]
    return "\n".join(lines)


def _term(term: Term) -> str:
    name = term.name if term.label else term.column
    return _line(term.title, term.meaning, *([f"`{name}`"] if name else []))


def _line(*cells: str) -> str:
    return "|" + "|".join(f" {cell.replace('|', '&#124;')} " if cell else " " for cell in cells) + "|"


def main() -> None:
    """Write all pages."""
    for name, text in {"rules": rules_page(), "glossary": glossary_page()}.items():
        (DOCS / f"{name}.md").write_text(text, encoding="utf-8")
    changed = {
        "api": api_page,
        "prometheus": mapping_page.with_summary,
        "planning": planning_page,
        "recommendations": recommendations_page,
    }
    for name, make in changed.items():
        page = DOCS / f"{name}.md"
        page.write_text(make(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
