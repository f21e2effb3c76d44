"""One bad file in a lake is left out and named, whatever is bad about it, and all that is good reads as without it."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from analytics.inventory import load_inventory
from analytics.quality.model import MOST_NAMED
from analytics.quality.remarks import data_quality
from analytics.window import Inputs, load_window_ledger
from fallow import config, parquet, schema
from fallow.clock import DAY_MS, HOUR_MS, Window
from fallow.errors import IrregularFileError, LakeError, VanishedFileError
from fallow.lake import Lake, LakeFile
from fallow.stores import regular_files
from fallow.stores.regular_files import NotRegularError, open_regular, read_regular
from tests.attacks.lake_files import FILE_FAULTS, good_rows, mutated_files, small_lake, victim
from tests.in_process import run_in_process
from tests.lakes import folder_of_nobodys, made_lake
from tests.ledger.rows import T0, load, samples, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return small_lake(tmp_path_factory.mktemp("new") / "lake")


@pytest.fixture(scope="module")
def kept(new: Lake, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, list[pl.DataFrame]]:
    """The same lake with its ledger, and what is in it."""
    lake = copied(new, tmp_path_factory.mktemp("kept"))
    return lake, hours(lake)


@pytest.fixture
def lake(new: Lake, tmp_path: Path) -> Lake:
    return copied(new, tmp_path)


@pytest.fixture
def built(kept: tuple[Lake, list[pl.DataFrame]], tmp_path: Path) -> tuple[Lake, pl.DataFrame]:
    """A lake of its own with its ledger, and the segments in it."""
    return copied(kept[0], tmp_path), kept[1][0]


def copied(lake: Lake, folder: Path) -> Lake:
    return made_lake(shutil.copytree(lake.root, folder / "lake"))


def remarks(lake: Lake, until_ms: int = T0 + 3 * DAY_MS // 2) -> list[str]:
    """What data quality says of files of the first day and a half."""
    inputs = Inputs(made_lake(lake.root), Window(T0, until_ms), config.load({}, None))
    quality = data_quality(inputs, load_window_ledger(inputs), load_inventory(inputs.lake))
    return [each.sentence for each in quality if each.kind == "files_left_out"]


def states(lake: Lake) -> pl.DataFrame:
    return load(made_lake(lake.root)).segments.sort("gpu", "time")


QUICK = """garbage; pipe; link to a device; 10 million nulls; 300,000 long texts; other types; two columns of one name;
text that is not UTF-8; 5,000 groups in one another; rows that the footer denies"""
"""Faults of `make test`, each caught in a place of its own; `make test-all` tries the others."""
OTHERS = [kind for kind in FILE_FAULTS if kind not in QUICK]


@pytest.mark.parametrize("kinds", [QUICK.replace("\n", " ").split("; "), pytest.param(OTHERS, marks=pytest.mark.long)])
def test_bad_files_of_every_kind_are_left_out_and_all_others_are_read(kinds: list[str], tmp_path: Path) -> None:
    """A lake with a host for each kind, one of whose files is bad."""
    hosts = {f"bad-{number:02}": FILE_FAULTS[kind] for number, kind in enumerate(kinds)}
    lake = small_lake(tmp_path / "lake", hosts)
    without = Lake.at(str(shutil.copytree(lake.root, tmp_path / "without")))
    bad = {host: victim(lake, host=host) for host in hosts}
    for host, (befall, _) in hosts.items():
        victim(without, host=host).unlink()
        befall(bad[host])
    assert states(lake).equals(states(without))
    said = remarks(lake)
    assert remarks(lake) == said, "what is kept says the same"
    unknown = r"at most \d+\.\d GPU-hours of the GPUs known then are unknown \(\d+\.\d % of their time in the"
    told = rf"(bad-\d+): 1 file of the table gpu on 2026-11-20 is left out \(.*{unknown}"
    *each_host, others = said
    assert [found and found[1] for found in (re.match(told, each) for each in each_host)] == [*hosts][:MOST_NAMED]
    number = len(hosts) - MOST_NAMED
    assert others.startswith(f"{number} more files of {number} hosts are left out")
    assert lake.root not in " ".join(said)
    checked = run_in_process("lake", "check", "--lake", lake.root, "--json")
    assert checked.returncode == 1
    named = json.loads(checked.stdout)["tables"]["left_out"]["rows"]
    faults = {host: each["fault"] for host, path in bad.items() for each in named if str(path) in each["message"]}
    assert (len(named), faults) == (len(hosts), {host: fault for host, (_, fault) in hosts.items()})


def test_what_two_bad_files_of_a_host_leave_unknown_is_told_once(lake: Lake) -> None:
    bad = victim(lake)
    bad.write_bytes(b"noise")
    os.mkfifo(bad.with_name("1-2.parquet"))
    (said,) = remarks(lake)
    told = "bad: 2 files of the table gpu on 2026-11-20 are left out (damaged, or no Parquet file of its"
    assert (said[: len(told)], " and no regular file): at most " in said) == (told, True)


def test_a_gpu_of_another_day_is_not_counted_among_those_whose_time_is_unknown(lake: Lake) -> None:
    write(lake, schema.GPU, samples("GPU-bad-2", 0, 600, every_s=60), "bad")
    second_day = [file for file in lake.files("gpu", hosts=["bad"]) if file.date == "2026-11-21"]
    Path(second_day[1].url).write_bytes(b"half an hour of two GPUs")
    (said,) = remarks(lake, until_ms=T0 + DAY_MS + 2 * HOUR_MS)
    assert "at most 0.9 GPU-hours of the GPUs known then are unknown (1.8 % of their time in the window)" in said


def test_the_whole_lake_is_checked_and_a_name_cannot_forge_what_is_said(lake: Lake) -> None:
    done = run_in_process("lake", "check", "--lake", lake.root)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["20 files, none left out."])
    victim(lake).rename(victim(lake).with_name("x\n20 files, none left out\n.parquet"))
    done = run_in_process("lake", "check", "--lake", lake.root)
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "19 files, 1 left out.")
    assert [line for line in done.stdout.splitlines() if "20 files" in line and line[0] != " "] == []


@pytest.mark.parametrize("place", ["hourly", "hourly/date=2026-11-20/0-0.parquet"])
def test_what_has_the_place_of_a_derived_file_is_named_by_the_check_too(lake: Lake, place: str) -> None:
    path = Path(lake.root, place)
    path.mkdir(parents=True)
    if place == "hourly":
        path.rmdir()
        path.write_text("no folder")
    done = run_in_process("ledger", "--lake", lake.root)
    assert (done.returncode, "(`fallow lake check` lists them)" in done.stderr) == (0, True)
    assert f"cannot write {path}" in done.stderr or f"{path} is, or is inside, a file" in done.stderr
    assert "move it out of the lake" in done.stderr
    done = run_in_process("lake", "check", "--lake", lake.root)
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "20 files, 1 left out.")
    assert str(path) in done.stdout


@pytest.mark.parametrize("table", ["process", "device"])
def test_a_bad_file_of_another_table_costs_what_it_says(lake: Lake, table: str) -> None:
    victim(lake, table).write_bytes(b"PAR1")
    assert set(states(lake)["host"]) == {"good", "bad"}
    (said,) = remarks(lake)
    assert f"bad: 1 file of the table {table} on" in said


def test_a_repaired_or_removed_file_is_noticed(built: tuple[Lake, pl.DataFrame]) -> None:
    lake, before = built
    bad = victim(lake)
    content = bad.read_bytes()
    bad.write_bytes(content[:-50])
    assert not states(lake).equals(before)
    assert remarks(lake)
    bad.write_bytes(content)
    assert remarks(lake) == []
    assert states(lake).equals(before)
    bad.unlink()
    assert remarks(lake) == []
    assert not states(lake).equals(before)


FOLDERS = (
    b"date=2026-02-31/host=bad",
    b"date=banana/host=bad",
    "date=\uff12\uff10\uff12\uff16-11-20/host=bad".encode(),
    b"date=9999-12-31/host=bad",
    b"date=2026-11-20/host=\xff\xfe",
    b"date=2026-11-20/host=%ff",
)


def test_folders_that_are_no_date_or_host_are_named_and_passed_over(built: tuple[Lake, pl.DataFrame]) -> None:
    lake, before = built
    for name in FOLDERS:
        where = Path(lake.root, "gpu", os.fsdecode(name))
        where.mkdir(parents=True)
        shutil.copy(victim(lake), where)
    assert states(lake).equals(before)
    said = " ".join(remarks(lake))
    assert "is left out (in a folder whose name is not UTF-8)" in said
    assert "left out (in a folder that is named for no date)" in said
    checked = run_in_process("lake", "check", "--lake", lake.root, "--json")
    assert checked.returncode == 1
    assert len(json.loads(checked.stdout)["tables"]["left_out"]["rows"]) == len(FOLDERS)


def test_a_broken_file_hides_nothing(built: tuple[Lake, pl.DataFrame]) -> None:
    lake, before = built
    files = lake.files("gpu", hosts=["bad"])
    wide = LakeFile("gpu", files[0].date, "bad", 0, 10**9)
    lake.put(wide, b"PAR1 and no more")
    assert len(lake.files("gpu", hosts=["bad"], dates=[wide.date])) == 1
    assert states(lake).equals(before)
    assert remarks(lake)
    # what is hidden may change without the day's files changing
    lake.delete(files[0])
    assert not states(lake).equals(before)


def test_a_link_to_a_file_of_the_lake_or_to_the_lake_is_followed(lake: Lake, tmp_path: Path) -> None:
    before, bad = states(lake), victim(lake)
    bad.rename(Path(lake.root, "kept.parquet"))
    bad.symlink_to(Path(lake.root, "kept.parquet"))
    (tmp_path / "link").symlink_to(lake.root)
    for root in (lake.root, tmp_path / "link"):
        assert load(made_lake(root)).segments.sort("gpu", "time").equals(before)


def test_a_linked_folder_is_not_entered(lake: Lake, tmp_path: Path) -> None:
    host = victim(lake).parent
    host.rename(tmp_path / "elsewhere")
    host.symlink_to(tmp_path / "elsewhere")
    assert good_rows(lake).height > 0
    (said,) = remarks(lake)
    assert "no regular file" in said


@pytest.mark.parametrize("table", ["gpu", "process", "device"])
def test_a_table_that_is_no_folder_is_an_error(lake: Lake, table: str, tmp_path: Path) -> None:
    folder = Path(lake.root, table)
    folder.rename(tmp_path / "elsewhere")
    for make, what in ((folder.touch, "a file"), (lambda: folder.symlink_to(tmp_path / "elsewhere"), "a link, which")):
        make()
        done = run_in_process("ledger", "--lake", lake.root)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert f"{folder} is {what}" in done.stderr
        folder.unlink()


@pytest.fixture
def lake_of_nobodys() -> Iterator[Lake]:
    with folder_of_nobodys() as folder:
        yield small_lake(folder / "lake")


def test_a_file_that_may_not_be_read_is_said_to_be_that_and_comes_back(lake_of_nobodys: Lake) -> None:
    lake = lake_of_nobodys
    before, bad = states(lake), victim(lake)
    bad.chmod(0)
    assert not states(lake).equals(before)
    (said,) = remarks(lake)
    assert "its reader lacks the permission" in said
    with pytest.raises(LakeError, match=rf"the user \S+ may not read {bad}; give this user permission") as refused:
        parquet.read(lake.files("gpu"), schema.GPU)
    assert "remove" not in str(refused.value)
    bad.chmod(0o600)  # neither its size nor its time has changed
    assert remarks(lake) == []
    assert states(lake).equals(before)


def test_a_folder_that_may_not_be_listed_costs_its_host_alone(lake_of_nobodys: Lake) -> None:
    lake = lake_of_nobodys
    before, host = good_rows(lake), victim(lake).parent
    host.chmod(0)
    try:
        assert good_rows(lake).equals(before)
        (said,) = remarks(lake)
    finally:
        host.chmod(0o700)
    assert said.startswith("bad: 1 file of the table gpu on 2026-11-20 is left out (its reader lacks")


def test_a_disk_that_fails_leaves_nothing_kept_that_rests_on_it(
    built: tuple[Lake, pl.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, before = built
    bad = victim(lake)
    write(lake, schema.GPU, samples("GPU-new", 0, 60), "new")  # so that something is built

    whole = regular_files.descriptor_of

    def failing(path: str, root: str) -> int:
        if path == str(bad):
            raise OSError(5, "Input/output error")
        return whole(path, root)

    with monkeypatch.context() as broken:
        broken.setattr(regular_files, "descriptor_of", failing)
        bad.touch()
        found = states(lake)
        assert not found.filter(found["host"] == "bad").equals(before.filter(before["host"] == "bad"))
    again = states(lake)
    assert again.filter(again["host"] == "bad").equals(before.filter(before["host"] == "bad"))


def test_a_folder_that_becomes_a_link_after_the_listing_is_not_followed(lake: Lake, tmp_path: Path) -> None:
    (file,) = [each for each in lake.files("gpu") if each.url == str(victim(lake))]
    folder = victim(lake).parent
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    for read in (lambda: open_regular(file.url, lake.root), lambda: read_regular(file.url, lake.root, 10**6)):
        with pytest.raises(NotRegularError, match="a link to it leads out of the lake"):
            read()
    moved = Path(lake.root).rename(tmp_path / "moved")
    Path(lake.root).symlink_to(moved)  # a lake may itself be a link
    assert read_regular(lake.files("gpu")[0].url, lake.root, 10**6)


def test_what_takes_a_files_place_after_the_listing_is_not_opened(lake: Lake) -> None:
    (file,) = [each for each in lake.files("gpu") if each.url == str(victim(lake))]
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir()):
        path = Path(file.url)
        path.rmdir() if path.is_dir() else path.unlink()
        make(path)
        with pytest.raises(IrregularFileError, match="is not a regular file"):
            parquet.read([file], schema.GPU)
        with pytest.raises(NotRegularError):
            open_regular(file.url, lake.root)


def test_a_footer_that_lies_about_its_rows_is_found(lake: Lake) -> None:
    bad = victim(lake)
    data = pq.read_table(bad, partitioning=None)
    pq.write_table(data, bad, compression="none", use_dictionary=False)  # without a checksum of fallow's
    content = bad.read_bytes()
    footer_bytes = 8 + int.from_bytes(content[-8:-4], "little")
    other = victim(lake, "process").read_bytes()
    bad.write_bytes(content[:-footer_bytes] + other[-8 - int.from_bytes(other[-8:-4], "little") :])
    assert set(states(lake)["host"]) == {"good", "bad"}
    assert remarks(lake)


OF_SMALL_TABLES_OR_FINDINGS = {"device_day", "allocation_day", "request_day", "event_day", "gpu_state", "finding"}
"""Derived tables that a lake so small has none of."""


@pytest.mark.parametrize(
    "table", [table.name for table in schema.TABLES if table.derived and table.name not in OF_SMALL_TABLES_OR_FINDINGS]
)
def test_a_kept_table_that_is_damaged_is_made_again(
    kept: tuple[Lake, list[pl.DataFrame]], tmp_path: Path, table: str
) -> None:
    whole, before = kept
    lake = copied(whole, tmp_path)
    bad = Path(lake.all_files(table)[0].url)
    content = bad.read_bytes()
    footer_bytes = 8 + int.from_bytes(content[-8:-4], "little")
    bad.write_bytes(b"PAR1" + b"\xff" * (len(content) - footer_bytes - 4) + content[-footer_bytes:])
    victim(lake).touch()  # so that the parts are put together again
    try:
        after = hours(lake)
    except VanishedFileError as error:
        assert f"{bad} was damaged and is removed" in error.message  # noqa: PT017  # one of two right answers
        after = hours(lake)
    assert all(one.equals(other) for one, other in zip(after, before, strict=True))
    assert load(lake).segments.height == before[0].height
    for file in lake.all_files(table) if table != "gpu_lifetime" else ():  # which nobody has read
        parquet.read([file], schema.table(table))


def hours(lake: Lake) -> list[pl.DataFrame]:
    """The ledger and every table beside it."""
    ledger = load(made_lake(lake.root))
    rollups = ledger.rollups
    beside = [rollups.hourly(), rollups.processes(), rollups.hosts(), rollups.serving(), rollups.quality()]
    return [ledger.segments.sort("gpu", "time"), *beside]


def test_mutated_files_leave_the_others_as_they_are() -> None:
    found = mutated_files(4)
    assert (found.wrong, found.refused, found.left_out + found.read) == ((), 0, 4)
    assert found.left_out > 1


@pytest.mark.long
def test_many_mutated_files_leave_the_others_as_they_are() -> None:
    found = mutated_files(60)
    assert (found.wrong, found.refused, found.left_out + found.read) == ((), 0, 60)
