"""Two weeks of scrapes, imported: the energy counter shows what idles, and work between the samples is no finding."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from analytics.mapping.mapping_file import load_exporters
from analytics.scraped.lake_writer import LakeWriter, WriterSettings
from analytics.scraped.rows.model import RowSettings
from analytics.scraped.rows.scraped_rows import host_rows
from analytics.scraped.totals import ReadTotals
from analytics.scraped.who.label_runs import Given
from benchmarks.scraped_lakes import ScrapedHost
from fallow.cli import main
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, format_ms
from tests.lakes import made_lake
from tests.ledger.rows import T0
from tests.scraped.scraped_series import ENERGY, MEMORY, POWER, UTIL, uuid

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake

EVERY_MS, LENGTH_MS = 2 * MINUTE_MS, 15 * DAY_MS
START_MS = T0 - LENGTH_MS
IDLE, LOOK_ALIKES, NOTEBOOK, FREE = (0, 1, 2), (3, 4), (5,), (6, 7)
"""GPUs: held and idle; at 0 in every sample and at work between them; used by day; with nobody on them."""


def imported(folder: Path, *, counter: bool) -> Lake:
    """The lake of one host's scrapes, as `fallow import prometheus` fills it."""
    host, times = ScrapedHost(), np.arange(START_MS, T0, EVERY_MS)
    noise = np.where(np.arange(len(times)) % 2, 0.3, -0.3)
    for gpu in (*IDLE, *LOOK_ALIKES, *NOTEBOOK, *FREE):
        by_day = (gpu in NOTEBOOK) & (times % DAY_MS // HOUR_MS >= 9) & (times % DAY_MS // HOUR_MS < 17)
        # a reading meets the work now and then, the sixth of a second of utilization never
        met = (gpu in LOOK_ALIKES) & (np.arange(len(times)) % 37 == 0)
        reading = np.where(by_day, 420.0, 71.0 if gpu in FREE else 117.0) + noise + 200 * met
        drawn = np.where(by_day, 420.0, reading if gpu not in LOOK_ALIKES else 135.0)
        labels = {
            "UUID": uuid(gpu),
            "gpu": str(gpu),
            "modelName": "NVIDIA H100 80GB HBM3",
            "Hostname": "gn01",
            "instance": "10.0.0.1:9400",
            "job": "dcgm",
        }
        pod = {} if gpu in FREE else {"namespace": "lab", "pod": f"work-{gpu}", "container": "work"}
        values = {
            UTIL: np.where(by_day, 60.0, 0.0),
            MEMORY: np.full(len(times), 0.0 if gpu in FREE else 20_480.0),
            POWER: reading,
        }
        if counter:
            values[ENERGY] = np.floor(np.cumsum(drawn * EVERY_MS))
        for metric, said in values.items():
            host.add({"__name__": metric, **labels, **pod}, times, said)
    lake = made_lake(folder)
    writer = LakeWriter(lake, WriterSettings(), ReadTotals())
    writer.begin_window()
    rows = list(host_rows(host.samples(), load_exporters(), RowSettings(START_MS, T0, None)))
    for each in rows:
        writer.write(writer.imported(each))
    writer.write_allocations(Given.of(rows), None, T0)
    return lake


@pytest.fixture(scope="module", params=[True, False], ids=["with the energy counter", "with power readings alone"])
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, bool]:
    return imported(tmp_path_factory.mktemp("imported") / "lake", counter=request.param), request.param


def answer(capsys: pytest.CaptureFixture[str], lake: Lake, *command: str) -> str:
    assert main([*command, "--lake", lake.root, "--since", format_ms(START_MS), "--until", format_ms(T0)]) == 0
    return capsys.readouterr().out


def in_json(capsys: pytest.CaptureFixture[str], lake: Lake, *command: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer(capsys, lake, *command, "--json"))
    return found


def uuids(numbers: tuple[int, ...]) -> set[str]:
    return {uuid(number) for number in numbers}


def test_findings_of_what_the_counter_confirms_are_worth_medium(
    fleet: tuple[Lake, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    lake, counter = fleet
    findings = in_json(capsys, lake, "findings", "--all")["findings"]
    by_gpu = {gpu: each for each in findings if each["rule"] == "held" for gpu in each["gpus"]}
    assert {by_gpu[gpu]["basis"] for gpu in uuids(IDLE)} == {"confirmed" if counter else "very likely"}
    assert {by_gpu[gpu]["basis"] for gpu in uuids(LOOK_ALIKES)} == {"sampled"}
    assert {by_gpu[gpu]["confidence"] for gpu in uuids(LOOK_ALIKES)} == {"low"}
    surer = {gpu for each in findings if each["confidence"] != "low" for gpu in each["reclaimable_gpus"]}
    if counter:
        assert surer == uuids(IDLE) | uuids(FREE)
        recommendations = in_json(capsys, lake, "recommendations")["recommendations"]
        ranked = [each for each in recommendations if each["ranked"]]
        assert {gpu for each in ranked for gpu in each["gpus_now"]} == surer
        assert {each["basis"] for each in ranked} == {"confirmed"}
    else:
        said = " ".join(by_gpu[uuid(0)]["failed_conditions"])
        samples = f"{LENGTH_MS // EVERY_MS:,}"
        assert (
            f"{samples} of {samples} samples at 0 and flat power of 117 W: very likely idle; the energy counter" in said
        )
        assert not surer & uuids(LOOK_ALIKES)


def test_every_row_marks_what_rests_on_samples(fleet: tuple[Lake, bool], capsys: pytest.CaptureFixture[str]) -> None:
    """Of 2,040 GPU-hours held the look-alikes' 720, and without a counter the notebook's nights: too few readings."""
    lake, counter = fleet
    unsure, hours = (LOOK_ALIKES, 720) if counter else ((*LOOK_ALIKES, *NOTEBOOK), 960)
    text = " ".join(answer(capsys, lake, "ledger", "--all").split())
    assert "Held idle up to 2," in text
    whole = in_json(capsys, lake, "ledger", "--by", "host")
    (row,) = whole["groups"]["rows"]
    assert (whole["basis"]["held"], row["held_basis"]) == ("sampled", "sampled")
    assert row["held_unconfirmed_gpu_hours"] == pytest.approx(hours, rel=0.01)
    rows = answer(capsys, lake, "ledger", "--by", "host", "--csv")
    assert "up to" not in rows
    listed = pl.read_csv(
        answer(capsys, lake, "sql", "select gpu, basis from ledger where state = 'held'", "--csv").encode()
    )
    marks = dict(listed.group_by("gpu").agg(pl.col("basis").unique().sort()).iter_rows())
    assert {gpu for gpu, own in marks.items() if "sampled" in own} == uuids(unsure)
