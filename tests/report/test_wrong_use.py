"""What goes wrong is one sentence that names the file and the remedy, and nothing is lost or half-written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fallow import parquet, schema
from tests.ledger.rows import fill, processes, samples, snapshot
from tests.report.conftest import HELD, HOUR

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.conftest import RunFallow
    from tests.report.conftest import Outcome

COMMANDS = ("ledger", "findings", "report")


@pytest.fixture
def small(lake: Lake) -> Lake:
    return fill(lake, samples("GPU-0", 0, 2 * HOUR, **HELD), processes("GPU-0", *range(0, 2 * HOUR, 300), every_s=300))


def one_sentence(done: Outcome, *parts: str) -> None:
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("fallow: ")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err
    for part in parts:
        assert part in done.err


def test_out_writes_the_file_and_prints_nothing(small: Lake, report: Callable[..., Outcome], tmp_path: Path) -> None:
    shown = report(small).out
    assert report(small, "--out", "-").out == shown
    target = tmp_path / "report.txt"
    target.write_text("an old one")
    target.chmod(0o604)
    assert report(small, "--out", str(target)) == type(report(small))(0, "", "")
    assert target.stat().st_mode & 0o777 == 0o604
    assert target.read_text(encoding="utf-8") == shown
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["report.txt"]


@pytest.mark.parametrize("place", ["missing/report.md", "file/report.md", ".", "n" * 300])
def test_out_that_cannot_be_written_leaves_nothing(
    small: Lake, report: Callable[..., Outcome], tmp_path: Path, place: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "file").write_text("not a folder")
    one_sentence(report(small, "--format", "md", "--out", str(out / place)), "cannot write", str(out))
    assert [path.name for path in out.rglob("*")] == ["file"]
    assert (out / "file").read_text() == "not a folder"


def test_out_to_a_pipe_or_device_writes_into_it_and_never_replaces_it(
    small: Lake, report: Callable[..., Outcome], tmp_path: Path
) -> None:
    """`--out /dev/stdout` as root must not put a file in the device's place."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert report(small, "--out", str(pipe)).code == 0
        assert os.read(reader, 1 << 16).decode().startswith("GPU waste report")
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_an_unknown_format_is_wrong_use(small: Lake, report: Callable[..., Outcome]) -> None:
    done = report(small, "--format", "docx")
    assert (done.code, done.out) == (2, "")
    assert "invalid choice: 'docx'" in done.err
    assert all(name in done.err for name in ("text", "md", "html", "pdf", "json", "csv"))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "arguments",
    [
        ["--since", "yesterday"],
        ["--since", "2026-11-21", "--until", "2026-11-20"],
        ["--nonsense"],
        ["--config", "/no/file"],
    ],
)
def test_wrong_arguments_are_wrong_use(
    small: Lake, report: Callable[..., Outcome], command: str, arguments: list[str]
) -> None:
    done = report(small, *arguments, command=command)
    assert (done.code, done.out) == (2, "")
    assert done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_no_lake_named(run_fallow: RunFallow, command: str) -> None:
    done = run_fallow(command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "fallow: --lake is missing; give --lake, set FALLOW_LAKE_PATH or lake.path in the config file\n"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_and_an_empty_lake(report: Callable[..., Outcome], tmp_path: Path, command: str) -> None:
    one_sentence(report(str(tmp_path / "no"), command=command), f"there is no lake at {tmp_path / 'no'}")
    assert not (tmp_path / "no").exists()
    (tmp_path / "empty").mkdir()
    one_sentence(report(str(tmp_path / "empty"), command=command), "holds no gpu rows yet", "fallow import")
    assert list((tmp_path / "empty").iterdir()) == []
    (tmp_path / "file").write_text("x")
    one_sentence(report(str(tmp_path / "file"), command=command), "there is no lake at")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_only_file_is_half_written(small: Lake, report: Callable[..., Outcome], command: str) -> None:
    victim = Path(small.files("gpu")[0].url)
    victim.write_bytes(victim.read_bytes()[:-100])
    before = snapshot(small, "gpu", "process")
    one_sentence(report(small, command=command), "hold no rows", str(victim), "not a whole Parquet file")
    assert snapshot(small, "gpu", "process") == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_newer_schema_version(small: Lake, report: Callable[..., Outcome], command: str) -> None:
    (file,) = small.files("gpu")
    newer = parquet.encode(schema.GPU, parquet.table_from_rows(schema.GPU, []), {"fallow_schema_version": "99"})
    Path(file.url).write_bytes(newer)
    before = snapshot(small)
    one_sentence(report(small, command=command), file.url, "schema version 99", "upgrade fallow")
    assert snapshot(small) == before
