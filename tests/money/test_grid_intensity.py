"""The grid's intensity by the hour: files as several sources write them, gaps, zones and clocks that change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.money.energy import GridIntensity, open_intensity
from fallow import config
from fallow.clock import format_ms
from fallow.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, text: str) -> str:
    path = folder / "grid.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def by_hour(folder: Path, text: str) -> dict[str, float]:
    """The known hours of UTC, as `24T05:00`."""
    found = GridIntensity.load(written(folder, text)).hours
    return {format_ms(hour)[8:16]: g for hour, g in found.iter_rows()}


HAND = "time,intensity"
MAPS = (
    "Datetime (UTC),Country,Zone name,Zone id,Carbon intensity gCO₂eq/kWh (direct),"
    "Carbon intensity gCO₂eq/kWh (Life cycle),Data source"
)
UK = "Datetime (UTC),Actual Carbon Intensity (gCO2/kWh),Forecast Carbon Intensity (gCO2/kWh),Index"
DAY = "2026-11-20"
SOURCES: dict[str, tuple[list[str], dict[str, float]]] = {
    "by hand": ([HAND, f"{DAY}T00:00Z,100", f"{DAY}T01:00Z,200"], {"20T00:00": 100, "20T01:00": 200}),
    "of a spreadsheet": (
        ["\ufefftime;intensity;note", f"{DAY} 01:00+01:00;100,5;x", f"{DAY} 02:00+01:00;200;y"],
        {"20T00:00": 100.5, "20T01:00": 200},
    ),
    "of Electricity Maps, of two intensities the direct one": (
        [MAPS, f"{DAY} 00:00:00,France,France,FR,21.5,33.1,rte", f"{DAY} 01:00:00,France,France,FR,22.5,34.1,rte"],
        {"20T00:00": 21.5, "20T01:00": 22.5},
    ),
    "of carbonintensity.org.uk: half hours, what was and not what was forecast": (
        [UK, f"{DAY}T00:00Z,100,900,low", f"{DAY}T00:30Z,200,900,low", f"{DAY}T01:00Z,300,900,low"],
        {"20T00:00": 150},
    ),
    "of WattTime: five minutes, pounds per MWh": (
        [
            "timestamp,MOER,MOER version,frequency",
            *(f"{DAY} 00:{minute:02d}:00+00:00,1000,3.2,300" for minute in range(0, 60, 5)),
        ],
        {"20T00:00": 453.59237},
    ),
    "of India: the lines begin at half past": (
        [HAND, *(f"{DAY}T0{hour}:00+05:30,{hour + 1}00" for hour in range(3))],
        {"19T19:00": 150, "19T20:00": 250},
    ),
    "the hour that clocks repeat is two": (
        [HAND, *(f"2026-10-25T{at}" for at in ("01:00+02:00,1", "02:00+02:00,2", "02:00+01:00,3", "03:00+01:00,4"))],
        {"24T23:00": 1, "25T00:00": 2, "25T01:00": 3, "25T02:00": 4},
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_files_as_their_sources_write_them(tmp_path: Path, source: str) -> None:
    lines, found = SOURCES[source]
    assert by_hour(tmp_path, "\n".join((*lines, ""))) == pytest.approx(found)


@pytest.mark.parametrize(
    ("lines", "known"),
    [
        (("00:00Z,1", "01:00Z,2", "03:00Z,4", "04:00Z,5"), ["00", "01", "03", "04"]),  # an hour is missing
        (("00:00Z,1", "01:00Z,", "02:00Z,3"), ["00", "02"]),  # its figure is
        (("00:00Z,1", "00:30Z,2", "01:00Z,3", "02:00Z,4", "02:30Z,5"), ["00", "02"]),  # half of it is
        (("03:00Z,4", "00:00Z,1", "01:00Z,2"), ["00", "01", "03"]),  # in any order
    ],
)
def test_gaps_stay_unknown(tmp_path: Path, lines: tuple[str, ...], known: list[str]) -> None:
    text = "time,intensity\n" + "".join(f"2026-11-20T{line}\n" for line in lines)
    assert [moment[3:5] for moment in by_hour(tmp_path, text)] == known


@pytest.mark.parametrize(
    ("header", "lines", "said"),
    [
        (HAND, ("T00:00,1", "T01:00,2"), f"line 2: '{DAY}T00:00' has no time zone"),
        (HAND, (" yesterday,1",), f"line 2: '{DAY} yesterday' is not a time"),
        (HAND, ("T00:00Z,1", "T01:00+01:00,2"), "line 3: the same moment stands in a line above"),
        (HAND, ("T00:00Z,-1",), "line 2: intensity '-1' is not a number from 0"),
        ("note,time,intensity", (",,1",), "line 2: the time is empty"),
        ("time,value", ("T00:00Z,1",), "has no column for the intensity"),
        ("when,intensity", ("T00:00Z,1",), "has no column for the time"),
        (HAND, ("T00:00Z,1",), "fewer than two lines"),
        (HAND, ("T00:00Z,1", "T01:00Z,2", "T03:00Z,1", "T05:00Z,1", "T07:00Z,1"), "more than an hour apart"),
    ],
)
def test_what_cannot_be_read_names_its_line(tmp_path: Path, header: str, lines: tuple[str, ...], said: str) -> None:
    text = "\n".join((header, *(f"{DAY}{line}" for line in lines)))
    with pytest.raises(ConfigError) as error:
        GridIntensity.load(written(tmp_path, text))
    assert said in str(error.value)


def test_what_is_asked_beats_the_setting_and_that_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_intensity(config.load({})).flat == 445
    monkeypatch.setenv("FALLOW_PLAN_CARBON", "30.5")
    assert (open_intensity(config.load({})).flat, open_intensity(config.load({})).source) == (30.5, "plan.carbon")
    path = written(tmp_path, "time,intensity\n2026-11-20T00:00Z,1\n2026-11-20T01:00Z,2\n")
    found = open_intensity(config.load({}), path)
    assert (found.flat, found.source) == (None, "grid.csv (intensity)")
