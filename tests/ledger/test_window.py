"""--since and --until: a window is cut to the millisecond, and says what lies in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from analytics.glossary import state_label
from analytics.language.languages import language
from analytics.ledger.summary import clip_ledger, summarise, totals_by
from fallow import parquet, schema
from fallow.cli import main
from fallow.clock import MINUTE_MS, Window
from fallow.lake import LakeFile
from fallow.schema import STATES
from tests.lakes import made_lake
from tests.ledger.rows import allocation, fill, load, ms, processes, samples

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
    fill(lake, rows, processes("a", *range(-7200, 7200, 30)), [allocation("b", -900, 1200)])
    return lake.root


@pytest.fixture(scope="module")
def ledger(place: str) -> Ledger:
    return load(made_lake(place))


def summary_of(ledger: Ledger, since: int | None, until: int | None) -> Summary:
    window = Window(since, until)
    return summarise(clip_ledger(ledger, window))


def test_a_idle_interval_counts_with_its_whole_length_wherever_the_window_cuts_it(ledger: Ledger) -> None:
    """Ten minutes out of two idle hours are part of an idle interval of at least 120 minutes."""
    inside = summary_of(ledger, ms(-300), ms(300))
    assert inside.totals.state_ms["held"] == 10 * MINUTE_MS
    assert inside.idle.idle_interval_ms["120m"] == 10 * MINUTE_MS


def test_sums_of_a_cut_segment_are_shared_by_time(ledger: Ledger) -> None:
    inside = clip_ledger(ledger, Window(ms(600), ms(1500))).segments.filter(gpu="a").row(0, named=True)
    assert inside["energy_mj"] == pytest.approx(100.0 * 900_000)
    assert (inside["zero_ms"], inside["util_ms"], inside["sample_count"]) == (900_000, 900_000, 90)


def test_totals_of_any_grouping_are_those_of_the_whole(ledger: Ledger) -> None:
    everything = summary_of(ledger, None, None).totals
    for group in ("gpu", "host", "state", "time"):
        groups = totals_by(ledger.segments, group).values()
        assert sum(each.total_ms for each in groups) == everything.total_ms
        for state, part in everything.state_ms.items():
            assert sum(each.state_ms[state] for each in groups) == part


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["ledger", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_json_of_a_window_says_its_ends_and_a_day_as_until_is_inclusive(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(*bounds: str) -> dict[str, Any]:
        code, out, _ = command(capsys, "--lake", place, "--json", *bounds)
        assert code == 0
        said: dict[str, Any] = json.loads(out)
        return said

    middle = found("--since", "2026-11-19T23:50Z", "--until", "2026-11-20T00:10:00Z")
    assert middle["window"] == {"since": "2026-11-19T23:50:00Z", "until": "2026-11-20T00:10:00Z"}
    assert (middle["gpus"], middle["gpu_hours"]["held"], middle["idle"]["share"]) == (2, 1 / 3, 1.0)
    first, second, everything = found("--until", "2026-11-19"), found("--since", "2026-11-20"), found()
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
    code, out, _ = command(capsys, "--all", "--lake", place)
    assert code == 0
    said = " ".join(out.split())
    for each in (
        "2026-11-19 22:00 UTC to 2026-11-20 02:00 UTC fleet: 2 GPUs on",
        "observed: 89.8 % of the time; 100.0 % of that time only sampled, once every 10 s; ",
        "no sum includes 0.5 GPU-hours before a host's first row or after its last",
        "Time without a kernel, including very short pauses: between 63.7 % and 71.1 % of the observed time (95 %).",
    ):
        assert each in said, said
    rows = [line.split() for line in out.splitlines()]
    hours = ("0.2", "0.0", "1.4", "0.4", "up to 2.0", "0.0", "0.0", "2.0")  # samples alone call the fifth held
    for state, shown in zip(STATES, hours, strict=True):
        assert f" {language('en').shown(state_label(state))} {shown} " in said, state
    assert ["paid", "6.0"] in rows
    assert ["Held", "idle", "2.0", "0.0", "2.0", "34.3", "%"] in rows, "its bounds"
    assert [row[-2] for row in rows if row[:2] == ["at", "0"]] == ["65.7", "65.7", "65.7", "57.1", "34.3"]
    assert max(map(len, out.splitlines())) <= 100


def test_a_lake_whose_files_hold_no_rows_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake, rows = made_lake(tmp_path / "lake"), parquet.table_from_rows(schema.GPU, [])
    lake.put(LakeFile("gpu", "2026-11-20", "h1", 1, 1), parquet.encode(schema.GPU, rows))
    code, out, err = command(capsys, "--lake", lake.root)
    assert (code, out) == (1, "")
    assert "hold no rows" in err
    assert "1970" not in err
