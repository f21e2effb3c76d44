"""`fallow import series`: joins, times, values, errors."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.importers.conftest import KEYS, NOON, files, query

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.importers.conftest import Run


def test_files_are_joined_and_nothing_is_lost_for_lack_of_a_partner(
    fallow_import: Run, place: str, tmp_path: Path
) -> None:
    util, memory = tmp_path / "util.parquet", tmp_path / "memory.csv"  # names say nothing: the bytes do
    util.write_bytes(gzip.compress(f"t,g,v\n{NOON},a,50\n{NOON + 10},a,60\n{NOON},b,0\n".encode()))
    pl.DataFrame({"g": ["a", "c"], "t": [NOON, NOON], "v": [2**34 + 1, 7 * 2**20]}).write_parquet(memory)
    done = fallow_import(
        *KEYS, "--interval", "10s", "--column", f"gpu_util_pct={util}:v", "--column", f"mem_used_bytes={memory}:v",
        "--model", "NVIDIA A10", "--mem-total", "24GiB", "--host", "pod/1",
    )  # fmt: skip
    assert done.summary["notes"] == [
        "1 of 4 rows have a partner in every file",
        f"2 rows are in {util} only",
        f"1 rows are in {memory} only",
        "3 GPU ids are not UUIDs: stored as pod/1/ID, separate from those of other hosts",
    ]
    assert query(
        place,
        "select gpu, epoch(time)::bigint, gpu_util_pct, mem_used_bytes, interval_ms, offset_ms, "
        "health, util_source, host from lake order by all",
    ) == [
        ("pod/1/a", NOON, 50, 2**34 + 1, 10_000, 0, "ok", "import", "pod/1"),
        ("pod/1/a", NOON + 10, 60, None, 10_000, 0, "ok", "import", "pod/1"),
        ("pod/1/b", NOON, 0, None, 10_000, 0, "ok", "import", "pod/1"),
        ("pod/1/c", NOON, None, 7 * 2**20, 10_000, 0, "ok", "import", "pod/1"),
    ]
    assert query(place, "select gpu, model, mem_total_bytes, source from lake order by all", "device") == [
        (f"pod/1/{gpu}", "NVIDIA A10", 24 * 2**30, "import") for gpu in "abc"
    ]


@pytest.mark.parametrize(
    "written",
    [
        "1795176000", "1795176000.0", "1795176000000", "1795176000000000", "1795176000000000000", "1.795176e9",
        "2026-11-20T12:00:00Z", "2026-11-20 12:00:00", "2026/11/20 12:00", "2026-11-20T13:00:00.000+01:00",
        "2026-11-20T07:00:00-0500", "2026-11-20T12:00:00.000000",
    ],
)  # fmt: skip
def test_a_time_is_read_as_it_is_written(one: Run, place: str, written: str) -> None:
    assert one(f"t,g,v\n{written},a,1\n").code == 0
    assert query(place, "select epoch_ms(time), offset_ms from lake") == [(NOON * 1000, 0)]


@pytest.mark.parametrize(
    "times",
    [
        pl.Series([NOON]),
        pl.Series([NOON * 1000.0]),
        pl.Series([datetime(2026, 11, 20, 12, tzinfo=UTC)]),
        pl.Series([datetime(2026, 11, 20, 12)]),  # noqa: DTZ001
        pl.Series([datetime(2026, 11, 20, 12)]).cast(pl.Datetime("ns")),  # noqa: DTZ001
        pl.Series([datetime(2026, 11, 20, 12, tzinfo=UTC)]).dt.convert_time_zone("Asia/Tokyo"),
    ],
)
def test_parquet_times(one: Run, place: str, times: pl.Series) -> None:
    assert one(pl.DataFrame({"t": times, "g": [7], "v": [1.5]}), "--host", "h").code == 0
    assert query(place, "select epoch_ms(time), gpu, gpu_util_pct from lake") == [(NOON * 1000, "h/7", 1.5)]


def test_local_times_and_the_grid(one: Run, place: str) -> None:
    done = one("t,g,v\n2026-11-20T13:00:03.250,a,1\n2026-11-20T13:00:09,a,2\n", "--tz", "Europe/Paris")
    assert done.summary["timezone"] == "Europe/Paris (given) for times without an offset"
    found = query(place, "select epoch_ms(time), offset_ms, gpu_util_pct from lake order by all")
    assert found == [(NOON * 1000, 3250, 1), (NOON * 1000, 9000, 2)]


def test_local_times_in_the_repeated_hour_among_others(one: Run, place: str) -> None:
    text = "t,g,v\n2026-10-25T02:30:00+01:00,a,1\n2026-10-25T02:40:00,a,2\nsoon,a,3\n2026-10-25T03:00:00,a,4\n"
    one(text, "--tz", "Europe/Paris").refused()  # which pass it is, is a guess
    done = one(text, "--tz", "Europe/Paris", "--yes")
    found = query(place, "select strftime(time, '%H:%M') from lake order by time")
    assert found == [("01:30",), ("01:40",), ("02:00",)]
    assert "1 rows of 2026-10-25 02:40-02:40" in done.notes[0]


def test_ugly_values_become_null_with_their_reason(one: Run, place: str) -> None:
    values = ["0", "100", '" 42 "', "100.5", "-1", "nan", "inf", "x", "", "N/A", "[Not Supported]", "null", "-"]
    done = one("t,g,v\n" + "".join(f"{NOON + 10 * at},a,{value}\n" for at, value in enumerate(values)))
    found = [row[0] for row in query(place, "select gpu_util_pct from lake order by time")]
    assert found == [0, 100, 42, *[None] * 10]
    reasons = {"outside 0..100: value dropped": 2} | dict.fromkeys(("NaN", "infinite", "not a number", *values[-4:]), 1)
    assert done.nulled() == {("gpu_util_pct", reason): count for reason, count in reasons.items()}


@pytest.mark.parametrize(
    ("column", "value", "stored"),
    [
        ("energy_mj", "9007199254740993", 2**53 + 1), ("mem_used_bytes", "21619802112.0", 21_619_802_112),
        ("mem_used_bytes", "-5", None), ("temperature_c", "-5", -5), ("temperature_c", "40000", None),
        ("gpu_util_zero_ratio", "1.1", None), ("energy_mj", "1e30", None),
        ("health", "lost", "lost"), ("health", "fine", None), ("sm_clock_mhz", "1410.6", 1411),
    ],
)  # fmt: skip
def test_each_column_keeps_what_it_can_be(one: Run, place: str, column: str, value: str, stored: object) -> None:
    assert one(f"t,g,v\n{NOON},a,{value}\n", column=column).code == 0
    assert query(place, f"from lake select {column}") == [(stored,)]


def test_rows_without_time_or_gpu_and_repeated_keys(one: Run, place: str) -> None:
    done = one(f"t,g,v\n,a,1\nsoon,a,1\n{NOON},,1\n-5,a,1\n{NOON},a,\n{NOON},a,3\n{NOON},a,4\n\n{NOON},b\n{NOON},bb")
    assert query(place, "select gpu, gpu_util_pct from lake order by gpu") == [("import/a", 3), ("import/b", None)]
    once = dict.fromkeys(("no time", "time unreadable", "no GPU", "time before 1970", "last line truncated"), 1)
    assert done.dropped() == once | {"same GPU and time again: first non-null value kept": 2}


def test_a_last_value_without_line_end_is_doubted(one: Run, place: str) -> None:
    done = one(f"t,g,v\n{NOON},a,45\n{NOON + 10},a,45")
    assert query(place, "select gpu_util_pct from lake order by time") == [(45,), (None,)]
    assert done.nulled() == {("gpu_util_pct", "last line has no end: value may be truncated"): 1}


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbft,g,v\r\n1795176000,GPU-\xe9,5\r\n",
        b"t;g;v\n1795176000;GPU-\xc3\xa9;5\n",
        b"\n\nt\tg\tv\n1795176000\tGPU-\xe9\t5\n\x00\x00\x00",
        "t,g,v\n1795176000,GPU-é,5\n".encode("utf-16"),
        "t,g,v\n1795176000,GPU-é,5\n".encode("utf-16-le"),
        "t,g,v\n1795176000,GPU-é,5\n".encode("utf-16-be"),
        b't, g ,"v"\n1795176000, GPU-\xe9 , 5\n',
    ],
)
def test_encodings_and_separators(one: Run, place: str, text: bytes) -> None:
    done = one(text)
    assert done.code == 0, done.err
    assert query(place, "select gpu, gpu_util_pct from lake") == [("GPU-é", 5)]


def test_json_is_no_table(one: Run) -> None:
    one('[{"t": 1795176000, "g": "a", "v": 5}]').refused("is JSON or XML, not a table", code=1)


def test_a_gzip_stream_that_ends_early_is_read_as_far_as_it_goes(one: Run, place: str) -> None:
    rows = "".join(f"{NOON + 10 * at},a,{at * 7919 % 100}.{at * 104729 % 1000}\n" for at in range(5000))
    done = one(gzip.compress(f"t,g,v\n{rows}".encode())[:-3000])
    assert "ends early" in done.notes[0]
    assert 0 < query(place, "select count(*) from lake")[0][0] < 5000


def test_the_interval_is_inferred_per_gpu(one: Run, place: str) -> None:
    rows = [(NOON + 10.003 * at, "a") for at in range(20)] + [(NOON + 60 * at, "b") for at in range(3)] + [(NOON, "c")]
    done = one("t,g,v\n" + "".join(f"{moment},{gpu},1\n" for moment, gpu in rows), interval="")
    assert done.summary["interval"].startswith("10s, 1min (inferred")
    found = query(place, "select distinct gpu, interval_ms from lake order by 1")
    assert found[:2] == [("import/a", 10_000), ("import/b", 60_000)]
    failed = one(f"t,g,v\n{NOON},a,1\n", interval="")
    assert (failed.code, "--interval" in failed.err) == (1, True)


@pytest.mark.parametrize(
    ("flag", "code", "said"),
    [
        ("gpu_util={path}:v", 2, "did you mean gpu_util_pct?"),
        ("time={path}:v", 2, "--time"),
        ("interval_ms={path}:v", 2, "--interval"),
        ("gpu_util_pct", 2, "NAME=FILE:COLUMN"),
        ("gpu_util_pct={path}:vv", 1, "did you mean 'v'?"),
        ("gpu_util_pct={path}.gone:v", 1, "there is no file"),
        ("gpu_util_pct={folder}:v", 1, "is a folder"),
    ],
)
def test_wrong_columns(one: Run, tmp_path: Path, flag: str, code: int, said: str) -> None:
    wrong = flag.format(path=tmp_path / "in.csv", folder=tmp_path)
    one(f"t,g,v\n{NOON},a,1\n", "--column", wrong, column="temperature_c").refused(said, code=code)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\n\n", b"t,g,v\n", b"t,g,v\nx,y,z\n", b"PAR1 and then nothing", b"\x1f\x8bnot really gzip", b"BZh91AY",
        bytes(range(256)) * 20, gzip.compress(b"", mtime=0), b"one line of prose", b'{"t": 1}',
    ],
)  # fmt: skip
def test_a_useless_file_is_named_and_nothing_is_written(one: Run, tmp_path: Path, content: bytes) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_bytes(content)
    one(f"t,g,v\n{NOON},a,1\n", "--column", f"mem_used_bytes={bad}:v").refused(str(bad))


def test_flags_that_are_wrong(one: Run) -> None:
    text = f"t,g,v\n{NOON},a,1\n"
    assert one(text, "--tz", "Europe/Pari").err.endswith("did you mean Europe/Paris?\n")
    for flags in (("--host", " "), ("--interval", "10"), ("--interval", "2d"), ("--mem-total", "big")):
        one(text, *flags).refused(code=2)


def test_lists_are_no_numbers(one: Run) -> None:
    one(pl.DataFrame({"t": [NOON], "g": ["a"], "v": [[1]]})).refused("List")


def test_every_line_that_is_left_out_is_counted(one: Run, place: str) -> None:
    """A decimal comma, two lines in one, an empty row, a header in the middle, a line without an end."""
    good = "".join(f"{NOON + 10 * at},a,{at}\n" for at in range(40))
    ugly = f"{NOON},a,1,5\n{NOON},a,{NOON},a,7\n,,\n\n  \nt,g,v\n{NOON + 500},a,9,\n"
    done = one(f"t,g,v\n{good}{ugly}")
    assert done.dropped() == {"more fields than the header has": 2, "no value in any column": 1, "time unreadable": 1}
    assert done.summary["files"][0]["lines_read"] == 45
    assert done.summary["rows"] == {"read": 45, "dropped": 4, "merged": 0, "kept": 41}
    assert query(place, "select max(gpu_util_pct) from lake") == [(39,)]


MINUTES = range(4)


def table(tmp_path: Path, head: str, rows: Iterable[str]) -> Path:
    path = tmp_path / "dump.csv"
    path.write_text("\n".join([head, *rows, ""]), encoding="utf-8")
    return path


def test_a_long_dump_of_many_hosts_is_one_command(fallow_import: Run, place: str, tmp_path: Path) -> None:
    dump = table(tmp_path, "t;node;card;name;value", (
        f"2026-11-20 10:0{minute}:00;gn{host:02};{gpu};{name};{value}"
        for minute in MINUTES for host in range(12) for gpu in range(2)
        for name, value in (("util", f"{50 * gpu},5"), ("mem", 9000))
    ))  # fmt: skip
    flags = (
        "--host-column",
        "node",
        "--metric-column",
        "name",
        "--value-column",
        "value",
        "--unit",
        "mem_used_bytes=MiB",
    )
    columns = ("--column", f"gpu_util_pct={dump}:util", "--column", f"mem_used_bytes={dump}:mem")
    done = fallow_import("series", "--time", "t", "--gpu", "card", *flags, *columns)
    assert done.summary["overview"]["gpus"] == 24
    assert (len(done.summary["overview"]["hosts"]), done.published["gpu"]) == (12, (96, 0, 0))
    found = query(place, "select host, gpu, max(gpu_util_pct), max(mem_used_bytes) from lake group by all order by all")
    assert (len(found), found[-1]) == (24, ("gn11", "gn11/1", 50.5, 9000 * 2**20))
    assert fallow_import("series", "--time", "t", "--gpu", "card", *flags, *columns).published["gpu"] == (0, 96, 0)


WIDE = {
    "Grafana's series by name": ('"Time","gn01 GPU 0","gn01 GPU 1"', "{host} GPU {gpu}", "*", "90 %,10 %"),
    "Grafana's with labels": (
        """Time,"{gpu=""0"", node=""gn01""}","{gpu=""1"", node=""gn01""}\"""",
        '{gpu="{gpu}", node="{host}"}',
        "*",
        "90,10",
    ),
    "W&B's": (
        (
            '"Time","gn01 - system.gpu.0.gpu","gn01 - system.gpu.0.gpu__MIN","gn01 - system.gpu.1.gpu","gn01 -'
            ' system.gpu.1.temp"'
        ),
        "{host} - system.gpu.{gpu}.{metric}",
        "gpu",
        "90,80,10,55",
    ),
    "for Excel": ("sep=;\nTime;gn01/0;gn01/1", "{host}/{gpu}", "*", "90,0;10,0"),
}


@pytest.mark.parametrize("kind", WIDE)
def test_a_wide_table_is_read_by_the_pattern_of_its_names(
    fallow_import: Run, place: str, tmp_path: Path, kind: str
) -> None:
    head, pattern, metric, values = WIDE[kind]
    separator = ";" if ";" in values else ","
    dump = table(tmp_path, head, (f"2026-11-20 10:0{minute}:00{separator}{values}" for minute in MINUTES))
    done = fallow_import("series", "--time", "Time", "--wide", pattern, "--column", f"gpu_util_pct={dump}:{metric}")
    assert done.code == 0, done.err
    found = query(place, "select host, gpu, count(*), max(gpu_util_pct) from lake group by all order by all")
    assert found == [("gn01", "gn01/0", 4, 90), ("gn01", "gn01/1", 4, 10)]


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--column", "gpu_util_pct={}:b"), 2, "no flag says where GPUs are named"),
        (("--gpu", "a", "--metric-column", "b", "--column", "gpu_util_pct={}:b"), 2, "--value-column belong together"),
        (("--wide", "{card}", "--column", "gpu_util_pct={}:b"), 2, "--wide '{card}' is not a pattern"),
        (("--wide", "GPU {gpu}", "--column", "gpu_util_pct={}:*"), 1, "no column of"),
        (("--wide", "{gpu}.{metric}", "--column", "gpu_util_pct={}:power"), 1, "has no metric 'power'; it has: util"),
        (
            ("--gpu", "t", "--metric-column", "a", "--value-column", "0.util", "--column", "gpu_util_pct={}:u"),
            1,
            "has no metric 'u'",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_one_sentence(
    fallow_import: Run, tmp_path: Path, flags: tuple[str, ...], code: int, said: str
) -> None:
    dump = table(tmp_path, "t,a,0.util", (f"2026-11-20 10:0{minute}:00,x,5" for minute in MINUTES))
    fallow_import("series", "--time", "t", *(each.replace("{}:", f"{dump}:") for each in flags)).refused(
        said, code=code
    )


def test_a_check_says_what_a_file_would_give_and_writes_nothing(one: Run, place: str) -> None:
    done = one(f"t,g,v\n{NOON},a,45\n{NOON + 10},a,45\n", "--check")
    assert (done.summary["published"], done.summary["rows"]["kept"], files(place)) == (False, 2, [])
