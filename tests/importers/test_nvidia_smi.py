"""`fallow import nvidia-smi`: what nvidia-smi writes, and what crashes, editors and log rotation make of it."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import shlex
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics.importers.nvidia_smi import NvidiaSmiSettings, read_file
from analytics.importers.nvidia_smi_lines import RECORD
from fallow.cli import main
from fallow.errors import FallowError
from tests.conftest import REPOSITORY
from tests.importers.conftest import LIMITS, START, at, query

if TYPE_CHECKING:
    from pathlib import Path

    from tests.importers.conftest import Run

FULL = (
    "timestamp, index, uuid, name, pci.bus_id, driver_version, pstate, memory.total [MiB], memory.used [MiB], "
    "utilization.gpu [%], utilization.memory [%], power.draw [W], enforced.power.limit [W], clocks.current.sm [MHz], "
    "clocks.current.memory [MHz], temperature.gpu, clocks_event_reasons.active"
)


def test_every_field_reaches_its_column(smi: Run, place: str) -> None:
    row = (
        "{time}, 3, GPU-abc, NVIDIA H100 80GB HBM3, 00000000:3B:00.0, 550.54.15, P0, 81559 MiB, 1024 MiB, 43 %, 7 %, "
        "345.67 W, 700.00 W, 1980 MHz, 2619 MHz, 45, 0x0000000000000004\n"
    )
    done = smi(FULL + "\n" + row.format(time=at(0.25)) + row.format(time=at(10.257)))
    assert done.published == {"device": (1, 0, 0), "gpu": (2, 0, 0)}
    assert query(
        place,
        "select gpu, strftime(time, '%H:%M:%S'), offset_ms, interval_ms, health, util_source, gpu_util_pct,"
        " mem_util_pct, mem_used_bytes, round(power_w::double, 2), temperature_c, sm_clock_mhz, mem_clock_mhz,"
        " throttle_reasons from lake order by time",
    ) == [
        ("GPU-abc", clock, offset, 10_000, "ok", "import", 43, 7, 2**30, 345.67, 45, 1980, 2619, 4)
        for clock, offset in (("10:00:00", 250), ("10:00:10", 257))
    ]
    sql = "select gpu, gpu_index, model, mem_total_bytes, power_limit_w, pci_bus_id, driver_version, source from lake"
    card = ("NVIDIA H100 80GB HBM3", 81_559 * 2**20, 700, "00000000:3B:00.0", "550.54.15")
    assert query(place, sql, "device") == [("GPU-abc", 3, *card, "import")]
    assert query(place, "select strftime(time, '%H:%M:%S') from lake", "device") == [("10:00:00",)]


@pytest.mark.parametrize(
    "text",
    [
        "timestamp, index, memory.used [MiB], utilization.gpu [%]\n{0}, 0, 512, 9\n{1}, 0, 513, 0\n",  # nounits
        "utilization.gpu [%], timestamp, memory.used [MiB], index\n9 %, {0}, 512 MiB, 0\n0 %, {1}, 513 MiB, 0\n",
        "\ufeffTimestamp,Index,memory.used,utilization.gpu\r\n{0},0,512 MiB,9 %\r\n\r\n{1},0,0.5009765625 GiB,0 %\r\n",
        (
            "timestamp, index, fan.speed [%], memory.used [MiB], utilization.gpu [%]\n{0}, 0, 30 %, 512 MiB, 9 %\n"
            "timestamp, memory.used [MiB], index, utilization.gpu [%]\n{1}, 513 MiB, 0, 0 %\n"
        ),  # other fields mid-file
        (
            "timestamp, index, memory.used [MiB], utilization.gpu [%]\n{0}, 0, 512 MiB, 9 %\n\x00\x00\x00\x00"
            "timestamp, index, memory.used [MiB], utilization.gpu [%]\n{1}, 0, 513 MiB, 0 %"
        ),
    ],
)
def test_fields_in_any_order_with_and_without_units(smi: Run, place: str, text: str) -> None:
    done = smi(text.format(at(0), at(10)))
    assert done.code == 0, done.err
    assert query(place, "select gpu, gpu_util_pct, mem_used_bytes from lake order by time") == [
        ("gn001/0", 9, 512 * 2**20),
        ("gn001/0", 0, 513 * 2**20),
    ]


@pytest.mark.parametrize(
    "header", ["Zeitstempel, Index, Leistung [W]", "时间, 编号, 功率", "timestamp, index, power.draw [W]"]
)
def test_fields_name_the_columns_below_a_header_that_does_not(smi: Run, place: str, header: str) -> None:
    text = f"{header}\n" + "".join(f"{at(10 * tick)}, 0, 350000\n" for tick in range(4))
    done = smi(text, flags=("--fields", "timestamp,index,power.draw [mW]"))
    assert done.summary["rows"]["kept"] == 4
    assert query(place, "select distinct power_w from lake") == [(350.0,)]


def test_files_without_a_header_need_fields(smi: Run) -> None:
    text = f"{at(0)}, 0, 5 %\n{at(10)}, 0, 6 %\n"
    smi(text).refused("--fields timestamp,index", code=2)
    smi("Failed to initialize NVML: Driver/library version mismatch\n").refused("it begins with 'Failed to", code=2)
    smi(text, flags=("--fields", "timestamp,index,utilisation.gpu")).refused("did you mean utilization.gpu", code=2)
    smi(text, flags=("--fields", "index,utilization.gpu")).refused(code=2)
    assert smi(text, flags=("--fields", "timestamp,index,utilization.gpu")).published["gpu"] == (2, 0, 0)


def test_what_nvidia_smi_does_not_know_is_null_and_never_zero(smi: Run, place: str) -> None:
    said = [
        "[N/A]",
        "[Not Supported]",
        "[Unknown Error]",
        "ERR!",
        "N/A",
        "[Insufficient Permissions]",
        "Requires Reset",
    ]
    reasons = {"": "empty", "12q %": "not a number", "101 %": "outside 0..100: value dropped"}
    lines = [f"{at(10 * number)}, 0, {value}, 5 W" for number, value in enumerate([*said, *reasons])]
    done = smi("timestamp, index, utilization.gpu [%], power.draw [W]\n" + "\n".join(lines) + "\n")
    assert query(place, "select count(*), count(gpu_util_pct), count(power_w) from lake") == [(10, 0, 10)]
    assert done.nulled() == {("gpu_util_pct", reason): 1 for reason in (*said, *reasons.values())}


def test_a_lost_gpu_sets_health_and_messages_are_no_samples(smi: Run, place: str) -> None:
    done = smi(
        "timestamp, index, uuid, utilization.gpu [%]\n"
        f"{at(0)}, 0, GPU-a, 5 %\n"
        f"{at(10)}, 0, [GPU is lost], [GPU is lost]\n"
        f"{at(20)}, 0, GPU-a, [GPU requires reset]\n"
        "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system\n"
        "Failed to initialize NVML: Driver/library version mismatch\n"
    )
    assert query(place, "select gpu, health, gpu_util_pct from lake order by time") == [
        ("GPU-a", "ok", 5),
        ("GPU-a", "lost", None),
        ("GPU-a", "reset_required", None),
    ]
    assert done.dropped() == {"a message of nvidia-smi, not a sample": 2}


def test_a_killed_run_leaves_half_a_line_before_the_next_header(smi: Run, place: str) -> None:
    head = "timestamp, index, utilization.gpu [%]\n"
    done = smi(
        f"{head}{at(0)}, 0, 5 %\n{at(10)}, 0, 4{head}{at(20)}, 0, 6 %\n{at(30)}, 0, 7{at(40)}, 0, 8 %\n{at(50)}, 0,"
        " 9 %\n"
    )
    assert query(place, "select gpu_util_pct from lake order by time") == [(5,), (6,), (9,)]
    mixed = "more fields than the header names: a decimal comma without quotes, or mixed lines"
    assert done.dropped() == {"wrong number of fields: truncated or mixed lines": 1, mixed: 1}


@pytest.mark.parametrize(("ending", "kept"), [("6 %", 6), ("6", None), ("[N/A]", None)])
def test_a_last_value_without_line_end_is_doubted(smi: Run, place: str, ending: str, kept: int | None) -> None:
    smi(f"timestamp, index, utilization.gpu [%]\n{at(0)}, 0, 5 %\n{at(10)}, 0, {ending}")
    assert query(place, "select gpu_util_pct from lake order by time") == [(5,), (kept,)]


def test_a_last_name_without_line_end_is_doubted(smi: Run, place: str) -> None:
    done = smi(f"timestamp, utilization.gpu [%], index\n{at(0)}, 5 %, 10\n{at(10)}, 5 %, 10\n{at(20)}, 6 %, 1")
    assert query(place, "select distinct gpu from lake") == [("gn001/10",)]
    assert done.dropped() == {"last line truncated": 1}


def test_a_damaged_header_costs_only_its_own_lines(smi: Run, place: str) -> None:
    good = "timestamp, index, utilization.gpu [%]\n"
    done = smi(f"{good}{at(0)}, 0, 5 %\n{good[4:]}{at(10)}, 0, 6 %\n{good}{at(20)}, 0, 7 %\n")
    assert query(place, "select gpu_util_pct from lake order by time") == [(5,), (7,)]
    assert done.dropped() == {"below a header line that names no timestamp": 1}
    smi(f"timestamp, index, utilization.gpu [%]\n{at(100)}, 0, 5 %\n{at(109.9)}, 0, 6 %\n", flags=("--interval", "10s"))
    moments = query(place, "select offset_ms, gpu_util_pct from lake where minute(time) = 1 order by 1")
    assert moments == [(0, 5), (9900, 6)], "two samples in one slot are both kept"


def test_windows_bytes_gzip_and_several_files(smi: Run, place: str) -> None:
    head = "timestamp, index, name, utilization.gpu [%]\n"
    one = f"{head}{at(0)}, 0, GeForce\xae, 5 %\n{at(10)}, 0, GeForce\xae, 6 %\n".encode("cp1252")
    two = gzip.compress(f"{head}{at(10)}, 0, GeForce®, 6 %\n{at(20)}, 0, GeForce®, 7 %\n".encode())
    done = smi(one, two)
    assert done.summary["notes"] == ["1 rows repeat a GPU and time: first non-null values kept"]
    assert query(place, "select gpu_util_pct from lake order by time") == [(5,), (6,), (7,)]
    assert query(place, "select model from lake", "device") == [("GeForce®",)]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 1),
        ("index, utilization.gpu [%]\n0, 5 %\n", 1),
        ("timestamp, index, utilization.gpu [%]\n", 1),
        ("timestamp, index\nnonsense\n", 1),
        ("some, other, csv\n1, 2, 3\n", 2),
        ("PAR1xxxx", 1),
        ("No devices were found\n", 2),
    ],
)
def test_a_useless_file_is_named_and_nothing_is_written(smi: Run, text: str, code: int) -> None:
    good = f"timestamp, index, utilization.gpu [%]\n{at(0)}, 0, 5 %\n{at(10)}, 0, 5 %\n"
    smi(good, text).refused("1.csv", code=code)


def test_the_summary_for_people(smi: Run) -> None:
    text = f"timestamp, index, utilization.gpu [%]\n{at(0)}, 0, 5 %\n{at(10)}, 0, [N/A]\n{at(20)}, 0\n"
    done = smi(text, as_json=False)
    lines = done.out.splitlines()
    assert lines[0].endswith("0.csv: 4 lines read, 2 rows kept")
    assert lines[1:11] == [
        "  1 dropped: wrong number of fields: truncated or mixed lines",
        "  1 values of gpu_util_pct unknown: [N/A]",
        "window    2026-11-20T10:00:00Z to 2026-11-20T10:00:20Z",
        "GPUs      1 on host gn001",
        "GPU-hours 0.01 within 0.01 h",
        "busy      5.0 % on average, 0.0% of the samples at 0",
        "cadence   10s between samples of a GPU (median), 10s at the most",
        "interval  10s (inferred: median distance between samples of a GPU)",
        "time zone UTC (assumed) for times without an offset",
        lines[10],
    ]
    assert lines[11:] == [
        "  device: 1 rows new, 0 already there, 0 replaced; 1 file written",
        "  gpu: 2 rows new, 0 already there, 0 replaced; 1 file written",
        f"next      fallow recommendations --lake {lines[10].split()[1]} --since 2026-11-20T10:00:00Z",
    ]
    assert done.err == ""
    assert smi(text, as_json=False).out.splitlines()[-2] == "  gpu: already there: 2 rows"


WHOLE = "".join(
    f"timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], power.draw [W]\n{at(0, day)}, 0, GPU-a, A,"
    f" 5 %, 7 MiB, 9.5 W\n{at(0.01, day)}, 1, GPU-b, A, [N/A], 7 MiB, ERR!\n{at(10, day)}, 0, GPU-a, A, 100 %, 7 MiB,"
    " 9.5 W\n"
    for day in (START, START + timedelta(days=1))
).encode()
DAMAGE = st.lists(
    st.tuples(
        st.integers(0, len(WHOLE)),
        st.integers(0, 40),
        st.binary(max_size=12) | st.sampled_from([b"\x00" * 9, b"\n", b", "]),
    ),
    max_size=4,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=DAMAGE)
def test_damage_never_ends_in_a_traceback_or_an_impossible_value(tmp_path: Path, damage: list) -> None:
    text = WHOLE
    for start, length, instead in damage:
        text = text[:start] + instead + text[start + length :]
    path = tmp_path / "damaged.csv"
    path.write_bytes(text)
    with contextlib.suppress(FallowError):
        frame, report = read_file(str(path), NvidiaSmiSettings("h", "UTC", None, None, LIMITS))
        assert report.rows_kept == frame.height
        for name, top in (("gpu_util_pct", 100), ("mem_used_bytes", 2**63 - 1), ("power_w", 1e38)):
            assert name not in frame.columns or frame[name].drop_nulls().is_between(0, top).all()


README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PRINTED = {
    "timestamp": ("timestamp", "{time}"),
    "index": ("index", "0"),
    "name": ("name", "NVIDIA H100 80GB HBM3"),
    "uuid": ("uuid", "GPU-7d0c64a1-0000-4000-8000-000000000001"),
    "memory.total": ("memory.total [MiB]", "81559 MiB"),
    "memory.used": ("memory.used [MiB]", "20480 MiB"),
    "utilization.gpu": ("utilization.gpu [%]", "{percent} %"),
    "power.draw": ("power.draw [W]", "400.00 W"),
}
"""What the driver prints for each field with --format=csv: the header and a value."""


def printed(fields: list[str], rows: int) -> str:
    """The file: a header, and a row every ten seconds."""
    lines = [", ".join(PRINTED[field][0] for field in fields)]
    values = ", ".join(PRINTED[field][1] for field in fields)
    lines += [values.format(time=at(10 * row), percent=80 + row % 20) for row in range(rows)]
    return "\n".join([*lines, ""])


def test_the_readme_records_and_imports_what_a_ledger_with_cost_and_energy_needs(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [(fields, file)] = re.findall(r"^nvidia-smi --query-gpu=(\S+) --format=csv -l 10 > (\S+)$", README, re.MULTILINE)
    (tmp_path / file).write_text(printed(fields.split(","), 360), encoding="utf-8")
    [command] = re.findall(r"^\.venv/bin/fallow (import nvidia-smi .*)$", README, re.MULTILINE)
    assert main(shlex.split(command.replace("/srv/lake", place))) == 0
    capsys.readouterr()
    assert main(["ledger", "--lake", place, "--json"]) == 0
    ledger = json.loads(capsys.readouterr().out)
    assert ledger["gpu_hours"]["total"] == pytest.approx(1)
    assert ledger["money"]["paid"] > 0
    assert ledger["money"]["unpriced_gpu_hours"] == 0
    assert ledger["energy"]["kwh"] == pytest.approx(0.4, rel=0.01)


def test_the_command_is_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "nvidia-smi", "--help"]) == 0
    importing = (REPOSITORY / "docs/importing.md").read_text(encoding="utf-8")
    for text in (README, importing, capsys.readouterr().out):
        assert [line.removeprefix("example: ") for line in text.splitlines() if "-l 10 >" in line] == [RECORD]


EMPTY_FIRST = {
    "power.draw [W], power.draw.average [W], power.draw.instant [W]": ("[N/A], [N/A], 88.10 W", "power_w", 88.1),
    "power.draw.instant [W], power.draw [W]": ("[Unknown Error], 88.10 W", "power_w", 88.1),
    "clocks.sm [MHz], clocks.current.sm [MHz]": ("[Not Supported], 1410 MHz", "sm_clock_mhz", 1410),
    "clocks_event_reasons.active, clocks_throttle_reasons.active": ("[N/A], 0x0000000000000004", "throttle_reasons", 4),
    "total_energy [J], energy.total [mJ]": ("N/A, 5000 mJ", "energy_mj", 5000),
    "power.draw [W], power.draw.average [W]": ("0.00 W, 88.10 W", "power_w", 0),
}


@pytest.mark.parametrize("fields", EMPTY_FIRST)
def test_of_several_columns_for_one_quantity_the_first_with_a_value_counts(smi: Run, place: str, fields: str) -> None:
    values, column, expected = EMPTY_FIRST[fields]
    done = smi(f"timestamp, uuid, {fields}\n" + "".join(f"{at(10 * n)}, GPU-a, {values}\n" for n in range(3)))
    assert query(place, f"from lake select distinct round({column}::double, 1)") == [(expected,)]
    assert done.nulled() == {}


def test_names_of_a_gpu_come_from_the_first_column_that_has_them(smi: Run, place: str) -> None:
    smi(
        f"timestamp, gpu_uuid, uuid, gpu_name, name, utilization.gpu [%]\n{at(0)}, [N/A], GPU-a, [N/A], NVIDIA A10,"
        " 5 %\n",
        flags=("--interval", "10s"),
    )
    assert query(place, "select gpu, model from lake", "device") == [("GPU-a", "NVIDIA A10")]


def saved(head: str, *rows: str) -> str:
    return "\n".join([head, *rows, ""])


SAVED = {
    "semicolons, decimal commas, dots in dates": saved(
        "timestamp;uuid;memory.used [MiB];power.draw [W]",
        *(f"20.11.2026 10:00:{n}0;GPU-a;9000 MiB;88,10 W" for n in range(3)),
    ),
    "tabs and the month first": saved(
        "timestamp\tuuid\tmemory.used [MiB]\tpower.draw [W]",
        *(f"11/20/2026 10:00:{n}0 AM\tGPU-a\t9000 MiB\t88.10 W" for n in range(3)),
    ),
    "quotes around what has a comma": saved(
        "timestamp,uuid,memory.used [MiB],power.draw [W]",
        *(f'2026/11/20 10:00:{n}0.000,GPU-a,9000 MiB,"88,10 W"' for n in range(3)),
    ),
    "quotes around all, and the day first": saved(
        '"timestamp";"uuid";"memory.used [MiB]";"power.draw [W]"',
        *(f'"20/11/2026 10:00:{n}0";"GPU-a";"9000 MiB";"88,1 W"' for n in range(3)),
    ),
    "for Excel, below a message": saved(
        'sep=;\nWarning: persistence mode is off\n"timestamp";"uuid";"memory.used [MiB]";"power.draw [W]"',
        *(f'"2026/11/20 10:00:{n}0";"GPU-a";"9000 MiB";"88,10 W"' for n in range(3)),
    ),
    "quotes behind nvidia-smi's blanks": saved(
        "timestamp, uuid, memory.used [MiB], power.draw [W]",
        *(f'2026/11/20 10:00:{n}0.000, GPU-a, 9000 MiB, "88,10 W"' for n in range(3)),
    ),
    "thousands and decimals": saved(
        "timestamp;uuid;memory.used [KiB];power.draw [mW]",
        *(f"2026-11-20 10:00:{n}0;GPU-a;9.216.000,0;88.100,0" for n in range(3)),
    ),
}


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *((text, "utf-8") for text in SAVED),
        ("for Excel, below a message", "utf-8-sig"),
        ("tabs and the month first", "utf-16"),
    ],
)
def test_what_a_spreadsheet_saved_is_read(smi: Run, place: str, text: str, encoding: str) -> None:
    smi(SAVED[text].encode(encoding), flags=("--tz", "UTC"))
    found = (
        "select count(*), min(strftime(time, '%Y-%m-%d %H:%M:%S')), any_value(mem_used_bytes),"
        " any_value(round(power_w::double, 1)) from lake"
    )
    assert query(place, found) == [(3, "2026-11-20 10:00:00", 9000 * 2**20, 88.1)]


HEAD_OF_SAVED = "timestamp;uuid;memory.used [MiB];power.draw [W]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEAD_OF_SAVED}05/06/2026 10:00:00;GPU-a;9000 MiB;88 W\n", "it may begin with the day or the month"),
        (f"{HEAD_OF_SAVED}20/06/2026 10:00:00;GPU-a;9 MiB;8 W\n06/20/2026 10:00:00;GPU-a;9 MiB;8 W\n",
         "some dates begin with"),
        (f"{HEAD_OF_SAVED}2026-11-20 10:00:00;GPU-a;9,000 MiB;88 W\n",
         "'9,000 MiB' may have a decimal comma or a separator"),
        (f"{HEAD_OF_SAVED}2026-11-20 10:00:00;GPU-a;9000;1.234 W\n2026-11-20 10:00:10;GPU-a;9000;88,1 W\n",
         "'1.234 W' may have"),
        (f"timestamp, uuid, power.draw [W]\n{at(0)}, GPU-a, 88,10 W\n", "a decimal comma without quotes"),
    ],
)  # fmt: skip
def test_what_a_spreadsheet_saved_unclearly_is_refused_for_that(smi: Run, text: str, said: str) -> None:
    smi(text, flags=("--interval", "10s")).refused(said)
