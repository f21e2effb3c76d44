"""A lake of four held GPUs and its pages as several people get them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analytics.workloads.model import Finding
from dashboard.access.audit_trail import NoTrail, Trail
from dashboard.access.people import PLANNER, VIEWER, Reader
from dashboard.app import build_app
from dashboard.view import View
from fallow.lake import Lake
from tests.dashboard.sites import As, Site
from tests.ledger.rows import device, fill, processes, samples

HOUR = 3600
MARKUP = "<img src=x onerror=alert(1)>"
FORMULA = "=HYPERLINK(1)"
USERS = {"a": "ann", "b": "bob", "c": MARKUP, "d": FORMULA}
PLAN = Reader("pia", PLANNER)
PLAN_ALPHA = Reader("paul", PLANNER, "alpha")
VIEW_ALPHA = Reader("vic", VIEWER, "alpha")
FROM_HERE = {"Origin": "http://localhost"}
_HELD: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 1, "gpu_util_coverage_ratio": 1.0}


@dataclass
class Pages:
    """The pages over a lake, as one person gets them."""

    site: Site
    who: Reader
    trail: Trail = field(default_factory=NoTrail)

    def __post_init__(self) -> None:
        self.source, self.config = self.site.source, self.site.config
        self.source.forget()
        self.app: Any = build_app(self.source, As(self.who), trail=self.trail)
        self.client = self.app.server.test_client()

    def view(self, search: str = "?span=all") -> View:
        return self.site.view(search, self.who)

    def call(self, changed: str, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """What the callback answers that `changed` (`id.property`) starts; `values` are its inputs and states."""
        found: dict[str, dict[str, Any]] = self.answer(changed, values)["response"]
        return found

    def answer(self, changed: str, values: dict[str, Any]) -> dict[str, Any]:
        """All that the browser gets for it, what is set beside the callback's own outputs too."""
        said = ("acts-status", "finding-detail", "findings-grid", "recommendation-detail", "what-if.")
        name, spec = next(
            (name, spec)
            for name, spec in self.app.callback_map.items()
            if changed in [f"{each['id']}.{each['property']}" for each in spec["inputs"]] and "url" not in name
            if any(each in name for each in said)
        )
        filled = {
            kind: [each | {"value": values.get(f"{each['id']}.{each['property']}")} for each in spec[kind]]
            for kind in ("inputs", "state")
        }
        outputs = [
            {"id": each, "property": kind}
            for each, _, kind in (part.rpartition(".") for part in name.strip(".").split("..."))
        ]
        body = {
            "output": name,
            "outputs": outputs if name.startswith("..") else outputs[0],
            **filled,
            "changedPropIds": [changed],
        }
        answer = self.client.post("/_dash-update-component", headers=FROM_HERE, json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.get_json()
        return found

    def press(self, kind: str, *ids: str, text: str = "", until: str = "", seen: dict[str, str] | None = None) -> Any:
        """What the page shows after a button."""
        typed = {f"act-{kind}.n_clicks": 1, "act-text.value": text, "act-until.value": until}
        known = {"url.search": "?span=all", "findings-chosen.data": list(ids), "findings-seen.data": seen or {}}
        return self.call(f"act-{kind}.n_clicks", typed | known)

    def look_at(self, *ids: str) -> Any:
        """The panel below the table after rows have been chosen."""
        values = {"findings-chosen.data": list(ids), "url.search": "?span=all"}
        return self.call("findings-chosen.data", values)["finding-detail"]["children"]


class Held(Site):
    """The lake and its settings."""

    def pages(self, who: Reader = PLAN, trail: Trail | None = None) -> Pages:
        return Pages(self, who, trail or NoTrail())

    def finding(self, gpu: str) -> Finding:
        """Return the finding that the GPU is held."""
        found = self.view("?span=all", PLAN).report.review.findings
        return next(each for each in found if each.rule == "held" and each.gpus == (gpu,))


def held_lake(lake: Lake, folder: Path) -> Held:
    """Four GPUs held for three hours; ann (`a`) is of team alpha, bob (`b`) of beta; only H100s are priced."""
    h100, unsold = "NVIDIA H100 80GB HBM3", "Card that nobody sells"
    rows = [row for gpu in USERS for row in samples(gpu, 0, 3 * HOUR, every_s=60, **_HELD)]
    lists = [
        row for gpu, user in USERS.items() for row in processes(gpu, *range(0, 3 * HOUR, 60), every_s=60, user=user)
    ]
    fill(lake, rows, lists, devices=[device(gpu, h100 if gpu in "ac" else unsold) for gpu in USERS])
    (folder / "owners.csv").write_text("kind,name,team\nuser,ann,alpha\nuser,bob,beta\n")
    (folder / "prices.csv").write_text(
        f"model,pool,hourly,currency,date,source\n{h100},train,2.5,USD,2025-01-02,order 7\n"
    )
    config = folder / "fallow.toml"
    tables = {name: json.dumps(str(folder / f"{name}.csv")) for name in ("owners", "prices")}
    config.write_text("[money]\n" + "".join(f"{name} = {path}\n" for name, path in tables.items()))
    return Held(lake, config)
