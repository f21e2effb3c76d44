"""`fallow lake init`, what commands do where there is no marker, and who wrote a file."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
from typing import TYPE_CHECKING

import pytest

from fallow import host_identity, parquet, schema
from fallow.host_claims import HOLDS, HostClaim
from fallow.host_identity import HostIdentity, machine_hash, merged_origin
from fallow.lake import Lake, LakeFile
from fallow.lake_init import init_lake
from fallow.lake_marker import MARKER_KEY, is_lake_id, read_marker
from tests.conftest import run_python
from tests.in_process import run_in_process
from tests.ledger.rows import T0, samples, write

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake_marker import Marker

INSTALL = "a" * 32
GPU_LOG = (
    "timestamp, index, uuid, utilization.gpu [%]\n2026/11/20 10:00:00.000, 0, GPU-a, 5 %\n2026/11/20 10:00:10.000, 0,"
    " GPU-a, 5 %\n"
)


def test_a_lake_is_made_once(tmp_path: Path) -> None:
    place = tmp_path / "srv" / "lake"
    first = run_in_process("lake", "init", "--lake", str(place))
    lake_id = json.loads((place / MARKER_KEY).read_text())["id"]
    assert is_lake_id(lake_id)
    agent = f"fallow agent run --lake {place} --spool /var/lib/fallow"
    following = f"next      {agent} (on each GPU host; for history: fallow import --help)\n"
    assert first.returncode == 0
    assert first.stdout == f"{place} is a new fallow lake, with the id {lake_id}.\n{following}"
    assert [each.name for each in place.iterdir()] == [MARKER_KEY]
    again = run_in_process("lake", "init", "--lake", str(place))
    assert again.stdout == f"{place} is already a fallow lake, with the id {lake_id}; nothing changed.\n{following}"
    told = json.loads(run_in_process("lake", "init", "--lake", str(place), "--json").stdout)
    assert (told["id"], told["new"], told["lake"], told["next"]) == (lake_id, False, str(place), agent)


def test_an_older_lake_gets_an_id_and_keeps_everything(tmp_path: Path) -> None:
    old = tmp_path / "gpu" / "date=2026-11-20" / "host=h"
    old.mkdir(parents=True)
    (old / "1-2.parquet").write_bytes(b"rows")
    assert run_in_process("lake", "init", "--lake", str(tmp_path)).returncode == 0
    assert (old / "1-2.parquet").read_bytes() == b"rows"
    assert read_marker(Lake.at(str(tmp_path)).store) is not None


def test_a_folder_of_something_else_becomes_no_lake(tmp_path: Path) -> None:
    (tmp_path / "home" / "thesis").mkdir(parents=True)
    (tmp_path / "gpu.csv").write_text(GPU_LOG)
    importing = ("import", "nvidia-smi", str(tmp_path / "gpu.csv"), "--host", "h")
    for command in (("lake", "init"), importing):
        other = run_in_process(*command, "--lake", str(tmp_path / "home"))
        assert (other.returncode, "contains thesis, which is not a table of a lake" in other.stderr) == (1, True)
    assert [each.name for each in (tmp_path / "home").iterdir()] == ["thesis"]
    mount = tmp_path / "mount"
    (mount / "lost+found").mkdir(parents=True)
    assert run_in_process("lake", "init", "--lake", str(mount)).returncode == 0
    inside = run_in_process("lake", "init", "--lake", str(mount / "gpu" / "lake"))
    assert (inside.returncode, f"is inside the lake {mount};" in inside.stderr) == (1, True)
    assert sorted(each.name for each in mount.iterdir()) == [MARKER_KEY, "lost+found"]


def test_several_at_once_end_with_one_id(tmp_path: Path) -> None:
    found: list[tuple[Marker, bool]] = []
    make = lambda: found.append(init_lake(Lake.at(str(tmp_path / "lake"))))  # noqa: E731
    threads = [threading.Thread(target=make) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {marker for marker, _ in found} == {read_marker(Lake.at(str(tmp_path / "lake")).store)}
    assert sorted(made for _, made in found) == [False] * 4 + [True]


BETWEEN = """
import shutil, sys
from pathlib import Path
from fallow.lake import Lake
from fallow.lake_init import init_lake

event, name, root, removed = sys.argv[1], sys.argv[2], Path(sys.argv[3]), []


def remove_folders(raised: str, arguments: tuple[object, ...]) -> None:
    if raised == event and f"/.leases{name}" in str(arguments[0]) and not removed:
        removed.append(1)
        shutil.rmtree(root / ".leases")


sys.addaudithook(remove_folders)
print(init_lake(Lake.at(str(root)))[1], len(removed))
"""
"""Removes the folder for tickets, as another maker of the lake does, in the moment before a call of the system."""


@pytest.mark.parametrize(("event", "name"), [("open", "/init/."), ("os.mkdir", "/init"), ("open", "")])
def test_a_lake_is_made_although_another_maker_removes_the_folder_for_tickets(
    event: str, name: str, tmp_path: Path
) -> None:
    """Before the ticket is opened, before its folder is made, and before the name of the folder is made durable."""
    made = run_python("-c", BETWEEN, event, name, str(tmp_path / "lake"))
    assert (made.returncode, made.stdout, made.stderr) == (0, "True 1\n", "")


def test_whoever_may_enter_the_folder_may_read_the_marker(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    before = os.umask(0o077)
    try:
        init_lake(Lake.at(str(tmp_path)))
    finally:
        os.umask(before)
    assert (tmp_path / MARKER_KEY).stat().st_mode & 0o777 == 0o640


def test_it_needs_the_base_install_alone(tmp_path: Path) -> None:
    code = (
        "import sys; from fallow.cli import main; code = main(sys.argv[1:]);print(code, {'pyarrow', 'polars', 'duckdb',"
        " 'arro3', 'numpy'} & {name.partition('.')[0] for name in sys.modules})"
    )
    assert run_python("-c", code, "lake", "init", "--lake", str(tmp_path)).stdout.endswith("0 set()\n")


@pytest.mark.parametrize("content", ["", "[]", '{"id": "x"}'])
def test_a_damaged_marker_is_an_error_with_a_remedy(tmp_path: Path, content: str) -> None:
    (tmp_path / MARKER_KEY).write_text(content)
    done = run_in_process("lake", "init", "--lake", str(tmp_path))
    assert (done.returncode, "is not a marker of a lake; restore it from a backup" in done.stderr) == (1, True)


@pytest.mark.parametrize("there", [False, True])
def test_an_import_makes_a_lake_where_nothing_is_and_says_so(tmp_path: Path, there: bool) -> None:  # noqa: FBT001
    place = tmp_path / "lake"
    if there:
        place.mkdir()
    (tmp_path / "gpu.csv").write_text(GPU_LOG)
    for number in range(2):
        done = run_in_process("import", "nvidia-smi", str(tmp_path / "gpu.csv"), "--host", "h", "--lake", str(place))
        assert done.returncode == 0, done
        assert (f"created a lake at {place} (id " in done.stderr) == (number == 0)
    (place / MARKER_KEY).unlink()
    done = run_in_process("import", "nvidia-smi", str(tmp_path / "gpu.csv"), "--host", "h", "--lake", str(place))
    assert (
        done.stderr
        == f"fallow: the lake at {place} has no id yet, so agents do not publish into it; `fallow lake init --lake"
        f" {place}` gives it an id\n"
    )
    assert not (place / MARKER_KEY).exists()


@pytest.mark.parametrize("command", ["ledger", "findings", "report"])
def test_a_reader_writes_nothing_into_an_empty_mount_point(tmp_path: Path, command: str) -> None:
    done = run_in_process(command, "--lake", str(tmp_path))
    assert (done.returncode, "holds no gpu rows yet" in done.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []


def put(lake: Lake, host: str, metadata: dict[str, str]) -> LakeFile:
    data = parquet.table_from_rows(schema.GPU, [{"gpu": f"GPU-{host}", "time": T0, "interval_ms": 10_000}])
    return lake.put(LakeFile("gpu", "2026-11-20", host, 10**15, 10**15), parquet.encode(schema.GPU, data, metadata))


def claim(lake: Lake, host: str) -> None:
    found = HostClaim(host, INSTALL, "m", "n", "fallow", "r", 1, HOLDS, 1, 1, 300)
    lake.store.put(found.key, found.content())


def test_a_file_of_another_host_than_its_folder_is_left_out(lake: Lake) -> None:
    write(lake, schema.GPU, samples("a", 0, 60), "h1")
    claim(lake, "h2")
    put(lake, "h1", HostIdentity("h2", INSTALL, "m").metadata())
    done = run_in_process("lake", "check", "--lake", lake.root, "--json")
    told = {name: each["rows"] for name, each in json.loads(done.stdout)["tables"].items()}
    assert (done.returncode, told["unclaimed"]) == (1, [])
    assert [each["fault"] for each in told["left_out"]] == ["foreign_host"]
    assert "names the host h2 and is in the folder of h1" in told["left_out"][0]["message"]
    done = run_in_process("ledger", "--lake", lake.root)
    assert (done.returncode, "left out" in done.stderr) == (0, True)


def test_a_file_of_an_installation_that_never_claimed_the_host_is_named(lake: Lake) -> None:
    claim(lake, "h1")
    put(lake, "h1", HostIdentity("h1", INSTALL, "m").metadata())
    put(lake, "h2", {"fallow_source": "import"})
    put(lake, "h3", {"host": "h3"})
    assert run_in_process("lake", "check", "--lake", lake.root).stdout.splitlines()[0] == "3 files, none left out."
    forged = put(lake, "h2", HostIdentity("h2", f"{INSTALL},{'b' * 32}", "m").metadata())
    done = run_in_process("lake", "check", "--lake", lake.root)
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "3 files, none left out. " in text
    assert f"1 file of an installation that never claimed the host. - {forged.url} was written by" in text
    assert f"{INSTALL}, which never claimed the host h2; find out who wrote it, and move it out of the lake" in text


MACHINE = "3d1219c7c4c5404aaa1f6d2a48adfda4"


def test_the_hash_is_made_as_systemd_makes_it(tmp_path: Path) -> None:
    file = tmp_path / "machine-id"
    file.write_text(f"{MACHINE}\n")
    app_id = host_identity._APP_ID  # noqa: SLF001  # the same function by another way
    made = bytearray(hmac.new(bytes.fromhex(MACHINE), app_id, hashlib.sha256).digest()[:16])
    made[6], made[8] = made[6] & 0x0F | 0x40, made[8] & 0x3F | 0x80
    assert machine_hash(str(file)) == made.hex() != MACHINE


@pytest.mark.parametrize("content", ["", "uninitialized\n", "0" * 32, "g" * 32, "\xff", None])
def test_a_machine_without_an_id_is_unknown(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "machine-id"
    if content is not None:
        file.write_text(content, encoding="latin-1")
    assert machine_hash(str(file)) == ""


def test_a_compacted_file_names_everybody_whose_rows_it_holds() -> None:
    first, second = (HostIdentity("gn001", install * 32, "m" * 32).metadata() for install in "ab")
    older: dict[str, str] = {}
    both = f"{'a' * 32},{'b' * 32}"
    names = {"fallow_host": "gn001", "fallow_install": both, "fallow_machine": "m" * 32}
    assert merged_origin([second, older, first]) == names
    assert merged_origin([merged_origin([first]), second]) == names
    assert merged_origin([older]) == {}
