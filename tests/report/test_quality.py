"""What is thin in the data is said aloud: one remark per kind of flaw, none where there is none, never a flood."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.ledger.rows import GB, device, fill, samples
from tests.report.conftest import BUSY, DAY, FREE, HOUR

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.report.conftest import Outcome

AGO = -90 * DAY  # well in the past, so that nothing is in the future


@pytest.fixture
def remarks(report: Callable[..., Outcome]) -> Callable[..., dict[str, list[str]]]:
    """Sentences per kind of remark."""

    def read(lake: Lake, *arguments: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for each in json.loads(report(lake, "--format", "json", *arguments).out)["data_quality"]:
            found.setdefault(each["kind"], []).append(each["sentence"])
        return found

    return read


def host(lake: Lake, name: str, first_s: float = 0, last_s: float = 6 * HOUR, **values: object) -> None:
    gpu = f"GPU-{name}"
    rows = samples(gpu, AGO + first_s, AGO + last_s, **BUSY | values)
    fill(lake, rows, devices=[device(gpu, time=rows[0]["time"])], host=name)


def test_nothing_to_remark(lake: Lake, remarks: Callable[..., dict[str, list[str]]]) -> None:
    host(lake, "h1")
    assert remarks(lake) == {}


def test_nobody_looked(lake: Lake, remarks: Callable[..., dict[str, list[str]]]) -> None:
    for number in range(7):
        host(lake, f"h{number}", 0, HOUR)
        host(lake, f"h{number}", 2 * HOUR + 600 * number, 6 * HOUR)
    sentences = remarks(lake)["unobserved"]
    assert len(sentences) == 6
    assert sentences[0] == "h6: nobody looked for 1.8 GPU-hours (30.6 % of its time)"
    assert sentences[-1] == "2 more hosts: nobody looked for 1.8 GPU-hours"


def test_silent_hosts_are_named_up_to_five_the_longest_silent_first(
    lake: Lake, remarks: Callable[..., dict[str, list[str]]]
) -> None:
    for number in range(8):
        host(lake, f"h{number}", 0, (number + 1) * HOUR)
    sentences = remarks(lake)["silent"]
    assert [sentence[:2] for sentence in sentences[:5]] == ["h0", "h1", "h2", "h3", "h4"]
    assert sentences[5] == "1 more host silent at the end of the window; time after that is not in any sum"
    assert remarks(lake, "--until", "2026-08-22T01:00Z").get("silent") is None


def test_a_gpu_that_is_gone_while_its_host_goes_on(lake: Lake, remarks: Callable[..., dict[str, list[str]]]) -> None:
    rows = samples("a", AGO, AGO + HOUR, **BUSY) + samples("b", AGO, AGO + 6 * HOUR, **BUSY)
    fill(lake, rows)
    (sentence,) = remarks(lake)["gone"]
    assert sentence == ("1 GPU on 1 host stopped reporting before the host did; time after that is not in any sum")


def test_how_the_figures_were_come_by(lake: Lake, remarks: Callable[..., dict[str, list[str]]]) -> None:
    rows = samples("a", AGO, AGO + HOUR, **FREE | {"process_count": None, "mem_used_bytes": 9 * GB})
    rows += samples("b", AGO, AGO + HOUR, **FREE | {"gpu_util_coverage_ratio": None})
    rows += samples("c", AGO, AGO + HOUR, **FREE | {"gpu_util_pct": None})
    found = remarks(fill(lake, rows, devices=[device("a")]))
    assert found == {
        "unmeasured": ["1 GPU never gave a utilization: its use is unknown, not zero"],
        "memory_holder": ["1.0 GPU-hours count as in use because memory was allocated; no process list says by whom"],
        "point_samples": [
            "1.0 GPU-hours rest on point samples that do not say how much of their interval they watched"
        ],
        "no_inventory": ["2 GPUs without an inventory entry: model, memory and pool are unknown"],
    }
