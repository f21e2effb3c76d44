"""Claims from a site's own table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.claims.csv_file import COLUMNS
from fallow import schema
from tests.claims.conftest import stored
from tests.ledger.rows import device, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fallow.lake import Lake
    from tests.claims.conftest import Outcome

START = 1_795_168_800_000  # 2026-11-20 10:00 UTC
HOUR = 3_600_000


def test_every_column(claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake) -> None:
    write(lake, schema.DEVICE, [device("GPU-a")], "gn1.example")
    text = (
        ",".join(COLUMNS) + "\n"
        "2026-11-20T10:00Z,2026-11-20T11:00Z,GPU-a,,,ann,ml,r1,Workshop,train,high,2026-11-19T10:00Z,2026-11-20T12:00Z\n"
        "2026-11-20T10:00Z,,,gn2,2,ann,ml,r1,Workshop,train,high,,\n"
        "\n"
        '2026-11-20 12:00,,GPU-x,gn3,,,"a ""b"", c",,,,,,\n'
    )
    done = claims("import", "csv", file(text), "--time-zone", "Europe/Paris")
    assert done.counts == (3, 0, 0)
    shared = {
        "scheduler": "csv",
        "account": "ml",
        "user": "ann",
        "name": "Workshop",
        "partition": "train",
        "qos": "high",
    }
    assert stored(lake) == [
        {"host": "gn3", "gpu": "GPU-x", "time": START + HOUR, "scheduler": "csv", "account": 'a "b", c', "gpu_count": 1,
         "claim_id": 'a "b", c@2026-11-20T11:00:00Z'},
        shared | {"host": "gn1.example", "gpu": "GPU-a", "time": START, "end": START + HOUR, "claim_id": "r1", "gpu_count": 3,
                  "submitted": START - 24 * HOUR, "planned_end": START + 2 * HOUR},
        shared | {"host": "gn2", "time": START, "claim_id": "r1", "gpu_count": 3, "host_gpu_count": 2},
    ]  # fmt: skip
    assert claims("import", "csv", file(text), "--time-zone", "Europe/Paris").counts == (0, 3, 0)


def test_a_row_that_came_again_with_its_end_replaces(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake
) -> None:
    for end, counts in (("", (1, 0, 0)), ("2026-11-20T11:00Z", (0, 0, 1)), ("2026-11-20T12:00Z", (0, 0, 1))):
        text = f"start;end;gpu;host;claim_id\n2026-11-20T10:00Z;{end};GPU-a;h1;r1\n"
        assert claims("import", "csv", file(text)).counts == counts
    assert [row["end"] - START for row in stored(lake)] == [2 * HOUR]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("start,gpu,hots\n", "a column 'hots', which no claim has; did you mean 'host'?"),
        ("start,start,gpu\n", "names a column twice"),
        ("start,host\n", "lacks the columns of a claim; it needs start, and gpu, or host and gpu_count"),
        ("gpu,host\n", "lacks the columns of a claim"),
        ("start,gpu\n1,2,3\n", "line 2: 3 fields where the header names 2"),
        ("start,gpu,host\nsoon,a,h\n", "line 2: start is no time"),
        ("start,gpu,host\n,a,h\n", "line 2: no start"),
        ("start,end,gpu,host\n2026-11-20T10:00,2026-11-20T09:00,a,h\n", "line 2: it ends before it starts"),
        ("start,gpu,host,gpu_count\n2026-11-20,,h,\n", "line 2: neither gpu, nor host and gpu_count"),
        ("start,host,gpu_count\n2026-11-20,h,0\n", "line 2: gpu_count is no whole number above 0"),
        ("start,host,gpu_count\n2026-11-20,h,two\n", "line 2: gpu_count is no whole number above 0"),
        ("start,gpu\n2026-11-20,GPU-a\n", "line 2: the lake does not know on which host the gpu is"),
        (
            "start,gpu,host\n2026-11-20,a,h\n\nx,a,h\ny,a,h\n",
            "line 4: start is no time, or one that the zone skips; line 5",
        ),
        ('start,gpu,host\n2026-11-20,"a\nb",h\nx,a,h\n', "line 4: start is no time"),
    ],
)
def test_bad_rows_are_named_by_their_line_and_nothing_is_written(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake, text: str, said: str
) -> None:
    good = file("start,gpu,host\n2026-11-20,a,h\n", "good.csv")
    done = claims("import", "csv", good, file(text))
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert not lake.store.exists()


def test_a_table_without_rows_is_no_error(claims: Callable[..., Outcome], file: Callable[..., Path]) -> None:
    assert claims("import", "csv", file("start,gpu,host\n")).counts == (0, 0, 0)


def test_a_plus_in_a_name_becomes_a_backslash(
    claims: Callable[..., Outcome], file: Callable[..., Path], lake: Lake
) -> None:
    claims("import", "csv", file("start,gpu,host,user,account\n2026-11-20 10:00,GPU-x,gn3,CORP+ann,r+d\n"))
    (row,) = stored(lake)
    assert (row["user"], row["account"]) == ("CORP\\ann", "r\\d")
    assert row["claim_id"] == "CORP\\ann@2026-11-20T10:00:00Z"
