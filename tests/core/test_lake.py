"""The lake's layout and its local store, on real folders."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.errors import EmptyLakeError, LakeError, UsageError
from fallow.lake import Lake, LakeFile, visible
from fallow.stores import LocalStore
from tests.lakes import folder_of_nobodys, made_lake

DATE = "2026-11-20"


def a_file(first: int, last: int, host: str = "gn001", table: str = "gpu", date: str = DATE) -> LakeFile:
    return LakeFile(table, date, host, first, last)


def names(files: list[LakeFile]) -> list[tuple[int, int]]:
    return [(file.first_seq, file.last_seq) for file in files]


def test_a_published_file_lies_where_the_layout_says(lake: Lake) -> None:
    put = lake.put(a_file(0, 9), b"rows")
    assert put.url == f"{lake.root}/gpu/date=2026-11-20/host=gn001/0-9.parquet"
    assert Path(put.url).read_bytes() == b"rows"
    assert lake.files("gpu") == [put]
    assert put.size_bytes == 4


@pytest.mark.parametrize(
    ("root", "folder", "file"), [(0o755, 0o755, 0o644), (0o750, 0o750, 0o640), (0o700, 0o700, 0o600)]
)
def test_files_grant_nothing_that_the_lakes_folder_does_not(lake: Lake, root: int, folder: int, file: int) -> None:
    Path(lake.root).chmod(root)
    before = os.umask(0o022)
    try:
        put = Path(lake.put(a_file(0, 9), b"rows").url)
    finally:
        os.umask(before)
    assert (stat.S_IMODE(put.parent.stat().st_mode), stat.S_IMODE(put.stat().st_mode)) == (folder, file)


@pytest.mark.parametrize("folder", ["gpu", "gpu/date=2026-11-20", "gpu/date=2026-11-20/host=gn001"])
def test_a_folder_that_is_a_link_is_not_written_to(lake: Lake, tmp_path: Path, folder: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "date=2026-11-20" / "host=gn001").mkdir(parents=True)
    Path(lake.root, folder).parent.mkdir(parents=True, exist_ok=True)
    Path(lake.root, folder).symlink_to(elsewhere)
    with pytest.raises(LakeError, match="is, or is inside, a link, which is not followed"):
        lake.put(a_file(0, 9), b"rows")
    assert not [path for path in elsewhere.rglob("*") if path.is_file()]


def test_only_a_file_that_is_there_whole_is_confirmed_and_publishing_again_replaces(lake: Lake) -> None:
    put = lake.put(a_file(0, 9), b"rows")
    lake.store.confirm(put.key, b"rows")
    Path(put.url).write_bytes(b"ro")
    with pytest.raises(LakeError, match=r"accepted 4 bytes for .* and has 2 bytes under this name"):
        lake.store.confirm(put.key, b"rows")
    Path(put.url).unlink()
    with pytest.raises(LakeError, match=r"accepted 4 bytes for .* and does not have it"):
        lake.store.confirm(put.key, b"rows")
    for content in (b"rows", b"rows!"):
        lake.put(a_file(0, 9), content)
        assert Path(put.url).read_bytes() == content


def test_a_missing_lake_and_an_empty_one_differ(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="there is no lake at") as missing:
        Lake.at(str(tmp_path / "no")).require_files("gpu")
    assert not isinstance(missing.value, EmptyLakeError)
    lake.put(a_file(0, 9), b"rows")
    with pytest.raises(EmptyLakeError, match="holds no process rows yet"):
        lake.require_files("process")


@pytest.mark.parametrize(
    "host",
    ["gn001", "gn 01", "a/b", "..", "host=x", "rack%2F1", "größe.example", "日本", "a'b\"c", "*?[x]", "x\ny", "."],
)
def test_any_host_name_comes_back(lake: Lake, host: str) -> None:
    lake.put(a_file(0, 9, host), b"rows")
    [file] = lake.files("gpu", hosts=[host])
    assert file.host == host
    assert Path(file.url).resolve().is_relative_to(Path(lake.root, "gpu", f"date={DATE}").resolve())
    assert lake.files("gpu", hosts=["other"]) == []


def test_files_are_chosen_by_host_and_date(lake: Lake) -> None:
    for host in ("gn001", "gn002"):
        for date in ("2026-11-19", "2026-11-20"):
            lake.put(a_file(0, 9, host, date=date), b"rows")
    found = [(file.host[-1], file.date[-2:]) for file in lake.files("gpu")]
    assert found == [("1", "19"), ("2", "19"), ("1", "20"), ("2", "20")]
    assert [file.date for file in lake.files("gpu", hosts=["gn002"])] == ["2026-11-19", "2026-11-20"]
    assert [file.host for file in lake.files("gpu", dates=[DATE])] == ["gn001", "gn002"]
    assert lake.files("gpu", hosts=[]) == []


def test_a_wider_file_hides_narrower_ones(lake: Lake) -> None:
    for first, last in ((0, 9), (10, 19), (0, 19), (20, 29)):
        lake.put(a_file(first, last), b"rows")
    lake.put(a_file(0, 9, host="gn002"), b"rows")
    assert names(lake.files("gpu", hosts=["gn001"])) == [(0, 19), (20, 29)]
    assert names(lake.files("gpu", hosts=["gn002"])) == [(0, 9)]
    assert len(lake.all_files("gpu")) == 5
    wide = a_file(0, 19)
    lake.delete(wide)
    lake.delete(wide)  # twice is no error
    assert names(lake.files("gpu", hosts=["gn001"])) == [(0, 9), (10, 19), (20, 29)], "the narrower show again"


@given(st.sets(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 30), st.integers(0, 30)), max_size=20))
def test_a_file_is_visible_exactly_when_no_other_covers_it(ranges: set[tuple[str, int, int]]) -> None:
    files = [a_file(first, first + length, host) for host, first, length in ranges]
    expected = [file for file in files if not any(other != file and other.covers(file) for other in files)]
    assert sorted(visible(files)) == sorted(expected)


def test_foreign_files_are_passed_over(lake: Lake) -> None:
    put = lake.put(a_file(0, 9), b"rows")
    folder = Path(put.url).parent
    for name in ("README", "x-y.parquet", ".0-9.parquet.1.ab.part", "0-9.parquet.tmp", "10.parquet"):
        (folder / name).write_bytes(b"other")
    (folder / "20-29.parquet").symlink_to("gone")
    assert lake.files("gpu") == [put]


def test_a_file_url_is_a_folder_and_an_unknown_scheme_wrong_use(tmp_path: Path) -> None:
    assert Lake.at(f"file://{tmp_path}").root == str(tmp_path)
    with pytest.raises(UsageError, match="no store for ftp://"):
        Lake.at("ftp://host/lake")


def test_a_target_that_cannot_be_written_is_one_sentence(lake: Lake) -> None:
    Path(lake.root, "gpu", f"date={DATE}").mkdir(parents=True)
    Path(lake.root, "gpu", f"date={DATE}", "host=gn001").write_text("a file where the folder should be")
    with pytest.raises(LakeError, match=r"cannot write .*0-9\.parquet: .* is inside, a file; move it out of the lake"):
        lake.put(a_file(0, 9), b"rows")
    loop = Path(lake.root, "process")
    loop.symlink_to(loop)
    with pytest.raises(LakeError, match=f"{loop} is a link, which is not followed; the lake needs a folder here"):
        lake.files("process")


@pytest.mark.parametrize("instead", ["nothing", "a file"])
def test_a_writer_never_makes_the_lakes_own_folder(tmp_path: Path, instead: str) -> None:
    lake = Lake.at(str(tmp_path / "lake"))
    if instead == "a file":
        Path(lake.root).write_text("x")
    remedy = f"mount it, or create a lake with `fallow lake init --lake {lake.root}`"
    with pytest.raises(LakeError, match=f"^there is no fallow lake at {lake.root}; {remedy}$"):
        lake.put(a_file(0, 9), b"rows")
    assert not Path(lake.root).is_dir()


def test_a_writer_stops_when_the_lakes_mount_goes_away(lake: Lake) -> None:
    lake.put(a_file(0, 9), b"rows")
    Path(lake.root).rename(f"{lake.root}.away")
    Path(lake.root).mkdir()
    with pytest.raises(LakeError, match=r"the lake at .* disappeared: fallow-lake.json is missing; mount it"):
        lake.put(a_file(10, 19), b"rows")
    assert list(Path(lake.root).iterdir()) == []


def test_missing_permissions_are_named() -> None:
    with folder_of_nobodys() as folder:
        lake = made_lake(folder / "lake")
        put = lake.put(a_file(0, 9), b"rows")
        partition = Path(put.url).parent
        partition.chmod(0o500)
        with pytest.raises(LakeError, match=r"cannot write .*Permission denied; check that the lake is a folder"):
            lake.put(a_file(10, 19), b"rows")
        with pytest.raises(LakeError, match=r"cannot remove .*Permission denied"):
            lake.delete(put)
        assert names(lake.files("gpu")) == [(0, 9)]
        partition.chmod(0)
        for listed in (made_lake(lake.root), lake):
            assert listed.files("gpu") == []
            (left_out,) = listed.left_out.found
            assert left_out.kind == "unreadable"
            assert re.fullmatch(rf"{partition} cannot be listed by the user \S+: Permission denied", left_out.sentence)
        Path(lake.root, "gpu").chmod(0)
        denied = f"cannot list {lake.root}/gpu: Permission denied for the user .*give this user"
        with pytest.raises(LakeError, match=denied):
            lake.files("gpu")
        Path(lake.root, "gpu").chmod(0o700)
        partition.chmod(0o700)
        Path(lake.root).chmod(0)
        with pytest.raises(LakeError, match=r"cannot access .*Permission denied"):
            Lake.at(f"{lake.root}/inner").require()
        Path(lake.root).chmod(0o700)


REPLACING_WRITER = """
import sys
from fallow.lake import Lake, LakeFile

lake = Lake.at(sys.argv[1])
print("ready", flush=True)
while True:
    for letter in (b"a", b"b"):
        lake.put(LakeFile("gpu", "2026-11-20", "gn001", 0, 9), letter * 500_000)
"""


def test_a_reader_sees_the_old_file_or_the_new_one_and_never_a_mixture(lake: Lake) -> None:
    lake.put(a_file(0, 9), b"a" * 500_000)
    with subprocess.Popen([sys.executable, "-c", REPLACING_WRITER, lake.root], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        try:
            seen = set()
            for reads in range(100_000):
                [file] = lake.files("gpu")
                content = Path(file.url).read_bytes()
                assert len(content) == 500_000
                assert content in (b"a" * 500_000, b"b" * 500_000)
                seen.add(content[:1])
                if reads >= 200 and len(seen) == 2:  # on a busy machine the writer may have to wait for its turn
                    break
        finally:
            writer.kill()
    assert seen == {b"a", b"b"}


def test_listing_ignores_a_file_that_vanishes_meanwhile(lake: Lake) -> None:
    lake.put(a_file(0, 9), b"rows")
    lake.put(a_file(10, 19), b"rows")
    store = LocalStore(lake.root)
    listing = store.list("gpu")
    first = next(listing)
    for file in lake.files("gpu"):
        if not file.url.endswith(first.key):
            lake.delete(file)
    assert list(listing) == []
