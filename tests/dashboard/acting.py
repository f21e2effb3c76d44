"""A lake of four held GPUs and its pages as several people get them."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from analytics.window import Inputs, open_inputs
from dashboard.access.audit_trail import NoTrail, Trail
from dashboard.access.people import PLANNER, VIEWER, Reader
from dashboard.app import build_app
from dashboard.query import Query
from dashboard.source import LakeSource
from dashboard.view import View
from tests.dashboard.sites import As
from tests.ledger.rows import device, fill, processes, samples

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.workloads.model import Finding
    from fallow.lake import Lake

HOUR = 3600
MARKUP = "<img src=x onerror=alert(1)>"
FORMULA = "=HYPERLINK(1)"
HOLDERS = {"a": "ann", "b": "bob", "c": MARKUP, "d": FORMULA}
PLAN = Reader("pia", PLANNER)
PLAN_ALPHA = Reader("paul", PLANNER, "alpha")
VIEW_ALPHA = Reader("vic", VIEWER, "alpha")
_HELD: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 1, "gpu_util_coverage_ratio": 1.0}


@dataclass
class Pages:
    """The pages over a lake, as one person gets them."""

    lake: Lake
    config: Path
    source: LakeSource
    who: Reader
    trail: Trail = field(default_factory=NoTrail)
    app: Any = field(init=False)

    def __post_init__(self) -> None:
        self.source.forget()
        self.app = build_app(self.source, As(self.who), trail=self.trail)
        self.client = self.app.server.test_client()

    def view(self, search: str = "?span=all") -> View:
        self.source.forget()
        look = self.source.look(Query.parse(search), self.who)
        assert isinstance(look, View), look
        return look

    def call(self, changed: str, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """What the callback answers that `changed` (`id.property`) starts; `values` are its inputs and states."""
        found: dict[str, dict[str, Any]] = self.answer(changed, values)["response"]
        return found

    def answer(self, changed: str, values: dict[str, Any]) -> dict[str, Any]:
        """All that the browser gets for it, what is set beside the callback's own outputs too."""
        name, spec = next(
            (name, spec)
            for name, spec in self.app.callback_map.items()
            if changed in [f"{each['id']}.{each['property']}" for each in spec["inputs"]] and "url" not in name
            and any(each in name for each in ("acts-said", "finding-detail", "findings-grid", "recommendation-detail"))
        )  # fmt: skip
        filled = {
            kind: [each | {"value": values.get(f"{each['id']}.{each['property']}")} for each in spec[kind]]
            for kind in ("inputs", "state")
        }
        outputs = [each.rpartition(".") for each in name.strip(".").split("...")]
        answer = self.client.post("/_dash-update-component", headers={"Origin": "http://localhost"}, json={
            "output": name,
            "outputs": [{"id": each, "property": kind} for each, _, kind in outputs]
            if name.startswith("..") else {"id": outputs[0][0], "property": outputs[0][2]},
            **filled,
            "changedPropIds": [changed],
        })  # fmt: skip
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.get_json()
        return found

    def press(self, kind: str, *ids: str, text: str = "", until: str = "", seen: dict[str, str] | None = None) -> Any:
        """What the page shows after a button."""
        return self.call(f"act-{kind}.n_clicks", {
            f"act-{kind}.n_clicks": 1, "url.search": "?span=all", "act-text.value": text, "act-until.value": until,
            "findings-chosen.data": list(ids), "findings-seen.data": seen or {},
        })  # fmt: skip

    def look_at(self, *ids: str) -> Any:
        """The panel below the table after rows have been chosen."""
        return self.call("findings-chosen.data", {
            "findings-chosen.data": list(ids), "url.search": "?span=all",
        })["finding-detail"]["children"]  # fmt: skip


@dataclass(frozen=True)
class Held:
    """The lake and its settings."""

    lake: Lake
    config: Path

    def inputs(self) -> Inputs:
        return open_inputs(argparse.Namespace(lake=self.lake.root, since=None, until=None, config=str(self.config)))

    @cached_property
    def source(self) -> LakeSource:
        """Of all its pages: the lake's rows stay as they are."""
        return LakeSource(self.inputs)

    def pages(self, who: Reader = PLAN, trail: Trail | None = None) -> Pages:
        return Pages(self.lake, self.config, self.source, who, trail or NoTrail())

    def finding(self, gpu: str) -> Finding:
        """The one that says the GPU is held."""
        self.source.forget()
        look = self.source.look(Query.parse("?span=all"), PLAN)
        assert isinstance(look, View), look
        found = look.report.review.findings
        return next(each for each in found if each.rule == "held" and each.gpus == (gpu,))


def held_lake(lake: Lake, folder: Path) -> Held:
    """Four GPUs, each held for three hours by somebody else: `a` by one of team alpha, `b` of beta; only H100s have a price."""
    models = {
        "a": "NVIDIA H100 80GB HBM3",
        "b": "Card that nobody sells",
        "c": "NVIDIA H100 80GB HBM3",
        "d": "Card that nobody sells",
    }
    rows = [row for gpu in HOLDERS for row in samples(gpu, 0, 3 * HOUR, every_s=60, **_HELD)]
    lists = [
        row for gpu, user in HOLDERS.items() for row in processes(gpu, *range(0, 3 * HOUR, 60), every_s=60, user=user)
    ]
    fill(lake, rows, lists, devices=[device(gpu, model) for gpu, model in models.items()])
    (folder / "owners.csv").write_text("kind,name,team\nuser,ann,alpha\nuser,bob,beta\n", encoding="utf-8")
    prices = "model,pool,hourly,currency,date,source\nNVIDIA H100 80GB HBM3,train,2.5,USD,2025-01-02,order 7\n"
    (folder / "prices.csv").write_text(prices, encoding="utf-8")
    config = folder / "fallow.toml"
    tables = {name: json.dumps(str(folder / f"{name}.csv")) for name in ("owners", "prices")}
    config.write_text("[money]\n" + "".join(f"{name} = {path}\n" for name, path in tables.items()), encoding="utf-8")
    return Held(lake, config)
