"""--since and --until: a window is cut to the millisecond, and windows that meet add up to the whole."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.ledger.summary import clip_ledger, summarise, totals_by
from fallow import parquet, schema
from fallow.cli import main
from fallow.clock import HOUR_MS, MINUTE_MS, Window
from fallow.lake import LakeFile
from fallow.schema import STATES
from tests.lakes import made_lake
from tests.ledger.rows import T0, claim, fill, load, ms, processes, samples

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.ledger.build import Ledger
    from analytics.ledger.summary import Summary

LOADED: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 1, "power_w": 100.0}
BUSY: dict[str, Any] = {"gpu_util_pct": 90.0, "process_count": 1, "power_w": 400.0}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two GPUs around midnight: busy, held for two hours over midnight, busy; and one half reserved with a gap."""
    lake = made_lake(tmp_path_factory.mktemp("window"))
    rows = samples("a", -7200, -3600, **BUSY) + samples("a", -3600, 3600, **LOADED) + samples("a", 3600, 7200, **BUSY)
    rows += samples("b", -1800, 0) + samples("b", 600, 5400)
    fill(lake, rows, processes("a", *range(-7200, 7200, 30)), [claim("b", -900, 1200)])
    return lake.root


@pytest.fixture(scope="module")
def ledger(place: str) -> Ledger:
    return load(made_lake(place))


def summary_of(ledger: Ledger, since: int | None, until: int | None) -> Summary:
    window = Window(since, until)
    return summarise(clip_ledger(ledger, window))


def added(*parts: Summary) -> tuple[dict[str, int], int, dict[str, int]]:
    return (
        {state: sum(part.totals.state_ms[state] for part in parts) for state in parts[0].totals.state_ms},
        sum(part.idle.zero_ms for part in parts),
        {name: sum(part.idle.spell_ms[name] for part in parts) for name in parts[0].idle.spell_ms},
    )


@settings(max_examples=20)
@given(st.lists(st.integers(T0 - 8_000_000, T0 + 8_000_000), min_size=1, max_size=4, unique=True).map(sorted))
def test_windows_that_meet_add_up_to_the_whole(ledger: Ledger, cuts: list[int]) -> None:
    edges = [None, *cuts, None]
    parts = [summary_of(ledger, since, until) for since, until in itertools.pairwise(edges)]
    assert added(*parts) == added(summary_of(ledger, None, None))
    energy = sum(
        clip_ledger(ledger, Window(since, until)).stretches["energy_mj"].sum()
        for since, until in itertools.pairwise(edges)
    )
    assert energy == pytest.approx(ledger.stretches["energy_mj"].sum())


def test_a_spell_counts_with_its_whole_length_wherever_the_window_cuts_it(ledger: Ledger) -> None:
    """Ten minutes out of two idle hours are part of a spell of at least 120 minutes."""
    inside = summary_of(ledger, ms(-300), ms(300))
    assert inside.totals.state_ms["held"] == 10 * MINUTE_MS
    assert inside.idle.spell_ms["120m"] == 10 * MINUTE_MS


def test_sums_of_a_cut_stretch_are_shared_by_time(ledger: Ledger) -> None:
    inside = clip_ledger(ledger, Window(ms(600), ms(1500))).stretches.filter(gpu="a").row(0, named=True)
    assert inside["energy_mj"] == pytest.approx(100.0 * 900_000)
    assert (inside["zero_ms"], inside["util_ms"], inside["sample_count"]) == (900_000, 900_000, 90)


def test_totals_of_any_grouping_are_those_of_the_whole(ledger: Ledger) -> None:
    everything = summary_of(ledger, None, None).totals
    for group in ("gpu", "host", "state", "time"):
        groups = totals_by(ledger.stretches, group).values()
        assert sum(each.total_ms for each in groups) == everything.total_ms
        for state, part in everything.state_ms.items():
            assert sum(each.state_ms[state] for each in groups) == part


def test_by_hand(ledger: Ledger) -> None:
    totals = summary_of(ledger, None, None).totals
    assert totals.state_ms == {
        "unknown": 580_000,  # b: ten minutes less the twenty seconds that its last row still reaches
        "unavailable": 0,
        "free": (900 + 4200) * 1000,
        "reserved": (900 + 20 + 600) * 1000,
        "held": 2 * HOUR_MS,
        "low": 0,
        "active": 2 * HOUR_MS,
    }


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["ledger", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_json_of_a_window_says_its_ends(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = ("--since", "2026-11-19T23:50Z", "--until", "2026-11-20T00:10:00Z")
    code, out, _ = command(capsys, "--lake", place, "--json", *bounds)
    found = json.loads(out)
    assert code == 0
    assert found["window"] == {"since": "2026-11-19T23:50:00Z", "until": "2026-11-20T00:10:00Z"}
    assert found["gpus"] == 2
    assert found["gpu_hours"]["held"] == pytest.approx(1 / 3, abs=0)
    assert found["idle"]["share"] == 1.0


def test_a_day_as_until_is_inclusive(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = json.loads(command(capsys, "--lake", place, "--json", "--until", "2026-11-19")[1])
    second = json.loads(command(capsys, "--lake", place, "--json", "--since", "2026-11-20")[1])
    everything = json.loads(command(capsys, "--lake", place, "--json")[1])
    assert first["window"]["until"] == second["window"]["since"] == "2026-11-20T00:00:00Z"
    for state, part in everything["gpu_hours"].items():
        assert first["gpu_hours"][state] + second["gpu_hours"][state] == pytest.approx(part)


def test_a_window_beside_the_rows_says_where_they_are(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = command(capsys, "--lake", place, "--since", "2027-01-01")
    assert (code, out) == (1, "")
    assert err == (
        f"fallow: the lake at {place} holds nothing between 2027-01-01T00:00:00Z and its end; it has rows from "
        "2026-11-19T22:00:00Z to 2026-11-20T02:00:00Z: choose a window that has some of them\n"
    )


def test_the_text_shows_every_state_and_the_thresholds(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "--lake", place)
    assert code == 0
    said = " ".join(out.split())
    for each in (
        "2026-11-19 22:00 UTC to 2026-11-20 02:00 UTC fleet: 2 GPUs on",
        (
            "observed: 89.8 % of the time; 100.0 % of it by point samples, one every 10 s; "
            "0.5 GPU-hours before a host's first row or after its last are in no sum"
        ),
        "Without a kernel, for however short a time: between 63.7 % and 71.1 % of the observed time (95 %).",
    ):
        assert each in said, said
    rows = [line.split() for line in out.splitlines()]
    hours = {row[0]: row[1] for row in reversed(rows) if row and row[0] in STATES}
    assert hours == dict(zip(STATES, ("0.2", "0.0", "1.4", "0.4", "2.0", "0.0", "2.0"), strict=True))
    assert ["paid", "6.0"] in rows
    assert ["held", "2.0", "0.0", "2.0", "34.3", "%"] in rows, "its bounds"
    assert [row[-2] for row in rows if row[:2] == ["at", "0"]] == ["65.7", "65.7", "65.7", "57.1", "34.3"]
    assert max(map(len, out.splitlines())) <= 100


def test_a_lake_whose_files_hold_no_rows_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:

    lake = made_lake(tmp_path / "lake")
    lake.put(
        LakeFile("gpu", "2026-11-20", "h1", 1, 1),
        parquet.encode(schema.GPU, parquet.table_from_rows(schema.GPU, [])),
    )
    code, out, err = command(capsys, "--lake", lake.root)
    assert (code, out) == (1, "")
    assert "hold no rows" in err
    assert "1970" not in err
