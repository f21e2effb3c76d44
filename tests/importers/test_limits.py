"""Files above the limits are refused in one sentence that names the setting; files just within them are read."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from analytics.importers.records import read_documents
from analytics.importers.source import InputLimits
from fallow.errors import InputError
from tests.importers.conftest import LIMITS, NOON
from tests.in_process import run_in_process

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import CompletedProcess

HEAD = b"timestamp, index, utilization.gpu [%]\n"
ROW = b"2026/11/20 10:00:%02d.000, 0, 5 %%\n"
SMALL = {"FALLOW_IMPORT_MAX_BYTES": "4kB", "FALLOW_IMPORT_MAX_RECORD": "400", "FALLOW_IMPORT_MAX_ROWS": "60"}
SMI = ("import", "nvidia-smi", "--host", "h", "--yes")
SERIES = ("import", "series", "--time", "time", "--gpu", "gpu", "--interval", "10s", "--yes")
XML = b"<nvidia_smi_log><timestamp>Fri Nov 20 10:00:0%d 2026</timestamp><gpu id='0'>%s</gpu></nvidia_smi_log>\n"


@pytest.mark.parametrize(
    ("content", "setting"),
    [
        (gzip.compress(HEAD + b"x" * 300 + b"\n" * 60) * 20, "import.max_bytes"),
        (gzip.compress(HEAD) + gzip.compress(b"") * 200, "import.max_bytes"),
        (HEAD + ROW % 1 + b"x" * 5000, "import.max_bytes"),
        (HEAD + b"\n" * 70, "import.max_rows"),
        (HEAD + b"\0a" * 70, "import.max_rows"),
        (HEAD + ROW % 1 + b"x" * 401, "import.max_record"),
        (XML % (1, b"") + XML % (2, b"<a/>" * 100), "import.max_record"),
    ],
)
def test_what_is_beyond_a_limit_is_refused(tmp_path: Path, content: bytes, setting: str) -> None:
    path = tmp_path / "in"
    path.write_bytes(content)
    done = run_in_process(*SMI, str(path), "--lake", str(tmp_path / "lake"), **SMALL)
    assert (done.returncode, done.stderr.count("\n"), f"raise {setting}" in done.stderr) == (1, 1, True), done.stderr
    assert not (tmp_path / "lake").exists()


def test_what_is_just_within_is_read(tmp_path: Path) -> None:
    path = tmp_path / "in.gz"
    path.write_bytes(b"".join(gzip.compress(part) for part in (HEAD, *(ROW % second for second in range(59)))))
    done = run_in_process(*SMI, str(path), "--lake", str(tmp_path / "lake"), "--json", **SMALL)
    assert json.loads(done.stdout)["rows"]["kept"] == 59


@pytest.mark.parametrize(
    ("rows", "text", "setting"), [(61, "0", "import.max_rows"), (50, "x" * 1000, "import.max_bytes")]
)
def test_a_table_of_parquet_is_counted_as_it_would_be_written_out(
    tmp_path: Path, rows: int, text: str, setting: str
) -> None:
    path = tmp_path / "in.parquet"
    pl.DataFrame({"time": range(NOON, NOON + rows), "gpu": [text] * rows, "v": [5.0] * rows}).write_parquet(path)
    done = run_in_process(*SERIES, "--column", f"gpu_util_pct={path}:v", "--lake", str(tmp_path / "lake"), **SMALL)
    assert (done.returncode, f"raise {setting}" in done.stderr) == (1, True), done.stderr


def slurm(tmp_path: Path, text: str, *flags: str, **limits: str) -> CompletedProcess[str]:
    path = tmp_path / "jobs"
    path.write_text(text)
    return run_in_process(
        "allocations", "import", "slurm", str(path), "--lake", str(tmp_path / "lake"), *flags, **limits
    )


def of_nodes(nodes: str, limit: str = "60") -> str:
    times = "2026-11-20T10:00:00|2026-11-20T11:00:00"
    return f"JobIDRaw|User|Start|End|NodeList|AllocTRES|Timelimit\n1|ann|{times}|{nodes}|gres/gpu=8|{limit}\n"


def test_a_list_of_hosts_counts_as_what_it_names_and_may_be_none(tmp_path: Path) -> None:
    done = slurm(tmp_path, of_nodes("n[1-61]"), **SMALL)
    assert (done.returncode, "raise import.max_rows" in done.stderr) == (1, True), done.stderr
    for nodes in ("n" + "[1]" * 5000, f"n[1-{'9' * 5000}]"):
        done = slurm(tmp_path, of_nodes(nodes, f"{'9' * 5000}-00:00:00"))
        assert (done.returncode, done.stderr.count("\n"), len(done.stderr) < 400) == (1, 1, True), done.stderr


def test_jobs_of_sacct_are_read_one_by_one_and_what_is_around_them_is_checked(tmp_path: Path) -> None:
    job = {
        "state": {"current": "RUNNING"},
        "time": {"start": NOON, "end": 0},
        "nodes": "n1",
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 8}]},
    }
    whole = json.dumps({"meta": {"a": [1]}, "jobs": [job | {"job_id": each} for each in range(9)], "errors": []})
    for text in (whole[:-3], whole.replace("RUNNING", '"RUN"', 1)):
        done = slurm(tmp_path, text, **SMALL)
        assert (done.returncode, "is not the JSON of sacct" in done.stderr) == (1, True), done.stderr
    assert json.loads(slurm(tmp_path, whole, "--json", **SMALL).stdout)["allocations"] == 9


def test_documents_come_one_by_one() -> None:
    each = {"a": "é" * 9000, "b": [1, {"c": None}]}
    text = json.dumps([each, each], ensure_ascii=False) + "\n" + json.dumps(each) + '\n{"broken": \n{"d": 1}\n'
    assert list(read_documents("f", text.encode(), LIMITS)) == [each, each, each, None, {"d": 1}]
    with pytest.raises(InputError, match="a line or document of more than"):
        list(read_documents("f", text.encode(), InputLimits(2**20, 2**14, 10)))
    with pytest.raises(InputError, match="damaged in more than"):
        list(read_documents("f", b'\n{"a":' * 10_001, LIMITS))
