"""NVIDIA's Grafana dashboard for DCGM's exporter, fed by the agent: what it asks for is on the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.metrics.collector import collect
from fallow.exposition import TEXT
from tests.agent.player import UUID
from tests.agent.simulation import START_MS
from tests.deploy.queries import dcgm_dashboard
from tests.fakes.nvml import GIB, Gpu, Scenario, constant

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.snapshot import Snapshot
    from tests.agent.simulation import SimulatedHost

DASHBOARD = dcgm_dashboard()
BUSY = Gpu(
    UUID,
    util=constant(80),
    mem_used=constant(40 * GIB),
    encoder_util=constant(7),
    decoder_util=constant(31),
    gpm={5: constant(40)},
)


@pytest.fixture
def page(simulated: Callable[..., SimulatedHost]) -> str:
    """The page of an agent on the fake driver after some seconds."""
    seen: list[Snapshot | None] = []
    host = simulated(Scenario((BUSY,), START_MS))
    host.at(7.5, lambda supervisor: seen.append(supervisor._board.latest()))  # noqa: SLF001
    host.run(9)
    (newest,) = seen
    assert newest is not None
    return collect((newest, 1.0)).render(TEXT).decode()


def samples(page: str, name: str) -> list[Any]:
    return [
        sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.removesuffix("_total") == name
    ]


def test_every_panel_and_variable_of_the_dashboard_finds_a_series(page: str) -> None:
    for title, query in DASHBOARD["panels"].items():
        [(name, matchers)] = re.findall(r"(DCGM_\w+)\{([^}]*)\}", query)
        labels = set(re.findall(r"(\w+)=~", matchers)) - {"instance"}  # which Prometheus adds
        assert any(labels <= sample.labels.keys() for sample in samples(page, name)), title
    for variable in DASHBOARD["variables"]:
        assert any(variable["label"] in sample.labels for sample in samples(page, variable["metric"])), variable


def test_the_values_are_dcgms_in_its_units(page: str) -> None:
    def value(name: str) -> float:
        (sample,) = samples(page, name)
        return float(sample.value)

    assert value("DCGM_FI_DEV_ENC_UTIL") == 7
    assert value("DCGM_FI_DEV_DEC_UTIL") == 31
    assert value("DCGM_FI_PROF_GR_ENGINE_ACTIVE") == pytest.approx(0.8, abs=0.02)
    parts = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_FREE")
    assert sum(map(value, parts)) == value("DCGM_FI_DEV_FB_TOTAL") == 80 * 1024
