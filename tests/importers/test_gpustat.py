"""`fallow import gpustat`: what `gpustat --json` prints, in a loop or once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fallow.pseudonyms import Pseudonyms
from tests.importers.conftest import query

if TYPE_CHECKING:
    from pathlib import Path

    from tests.importers.conftest import Outcome, Run


def document(second: int, host: str = "gn001", **changes: object) -> dict[str, object]:
    gpu = {
        "name": "NVIDIA H100 80GB HBM3", "temperature.gpu": 45, "fan.speed": None, "utilization.gpu": 43,
        "utilization.enc": 0, "utilization.dec": 0, "power.draw": 345, "enforced.power.limit": 700, "memory.used": 1024,
        "memory.total": 81559, "processes": [{"username": "a", "pid": 1, "gpu_memory_usage": 9}], **changes,
    }  # fmt: skip
    gpus = [{"index": at, "uuid": f"GPU-{at}", **gpu} for at in range(2)]
    about = {"hostname": host, "driver_version": "550.54.15", "query_time": f"2026-11-20T10:00:{second:02}.123456"}
    return {**about, "gpus": gpus}


@pytest.fixture
def gpustat(fallow_import: Run, tmp_path: Path) -> Run:
    def run(text: str, *flags: str) -> Outcome:
        path = tmp_path / "gpustat.json"
        path.write_text(text)
        return fallow_import("gpustat", path, *flags)

    return run


@pytest.mark.parametrize(
    ("ends", "indent"), [(("", "\n", "\n"), None), (("[", ",\n", "]\n"), None), (("", ",", ",\n"), 4)]
)
def test_documents_one_after_another(gpustat: Run, place: str, ends: tuple[str, str, str], indent: int | None) -> None:
    first, between, last = ends
    done = gpustat(first + between.join(json.dumps(document(10 * tick), indent=indent) for tick in range(3)) + last)
    assert done.summary["host"] == "gn001"
    assert done.summary["rows"] == {"read": 6, "dropped": 0, "merged": 0, "kept": 6}
    values = "gpu_util_pct, mem_used_bytes, round(power_w), temperature_c, host from lake order by time, gpu limit 1"
    rows = query(place, f"select gpu, strftime(time, '%H:%M:%S'), offset_ms, {values}")
    assert rows == [("GPU-0", "10:00:00", 123, 43, 2**30, 345, 45, "gn001")]
    cards = query(place, "select gpu_index, model, mem_total_bytes, power_limit_w from lake order by 1", "device")
    assert cards[1] == (1, "NVIDIA H100 80GB HBM3", 81_559 * 2**20, 700)


def test_damage_and_missing_values_are_counted(gpustat: Run, place: str) -> None:
    texts = [json.dumps(document(0)), json.dumps(document(10))[:200], json.dumps(document(20, **{"power.draw": None}))]
    done = gpustat("\n".join(texts) + "\n")
    assert done.dropped() == {"in a document that is truncated or damaged": 1}
    assert done.nulled()["power_w", "[N/A]"] == 2
    assert query(place, "select count(*), count(power_w) from lake") == [(4, 2)]


def test_hosts_are_kept_apart(gpustat: Run, place: str) -> None:
    text = "".join(json.dumps(document(second, host)) + "\n" for second in (0, 10) for host in ("gn001", "gn002"))
    gpustat(text).refused()
    gpustat(json.dumps(document(0)), "--host", "gn003").refused("is of the host gn001, not of gn003")
    assert gpustat(text, "--host", "gn002").dropped() == {"of another host than --host": 4}
    assert query(place, "select distinct host from lake") == [("gn002",)]


@pytest.mark.parametrize(
    "text", ["[]", "{}", "prose", '{"gpus": []}', '{"gpus": [1], "query_time": 5, "hostname": "h"}', "[" * 9999]
)
def test_what_is_not_gpustats_is_refused(gpustat: Run, text: str) -> None:
    gpustat(text).refused(code=2 if text == '{"gpus": []}' else 1)


@pytest.mark.parametrize("moment", ["2026-11-20T10:00:{:02}.123+00:00", "17951688{:02}.123"])
def test_times_that_say_their_moment_are_read(gpustat: Run, place: str, moment: str) -> None:
    documents = [document(0) | {"query_time": moment.format(second)} for second in (0, 10, 20)]
    done = gpustat("\n".join(map(json.dumps, documents)), "--tz", "Europe/Paris")
    assert (done.dropped(), done.summary["timezone"]) == ({}, "UTC (the files' own)")
    assert query(place, "select distinct epoch_ms(time) + offset_ms from lake order by 1 limit 1") == [(1795168800123,)]


def test_a_hint_names_the_tool_of_the_file(gpustat: Run) -> None:
    gpustat(json.dumps(document(0) | {"query_time": "yesterday"})).refused("give times as gpustat --json writes them")
    hot = (json.dumps(document(second, **{"temperature.gpu": 400})) for second in range(0, 50, 10))
    gpustat("\n".join(hot)).refused("gpustat --json writes another unit")


def test_users_by_pseudonyms(gpustat: Run, place: str, tmp_path: Path) -> None:
    key = tmp_path / "pseudonym.key"
    key.write_text("7" * 64)
    key.chmod(0o640)
    processes = [{"username": user, "pid": pid, "gpu_memory_usage": 9} for pid, user in ((1, "ann"), (2, None))]
    text = "".join(json.dumps(document(10 * tick, processes=processes)) + "\n" for tick in range(3))
    done = gpustat(text, "--pseudonym-key", str(key))
    assert done.summary["overview"]["users"] == 1
    expected = [(1, Pseudonyms(b"7" * 64).of("ann")), (2, None)]
    assert query(place, "select distinct pid, user from lake order by 1", "process") == expected
    key.chmod(0o644)
    assert gpustat(text, "--pseudonym-key", str(key)).code == 2
