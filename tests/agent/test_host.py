"""Rows of the `host` table: from trees that stand for other hosts, and from this one's real /proc beside psutil."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.host import HostMeter

if TYPE_CHECKING:
    from collections.abc import Mapping

START_MS = 1_790_000_000_000
INTERVAL_MS = 10_000
RATES = (
    "cpu_util_pct", "cpu_pressure_pct", "mem_pressure_pct", "io_pressure_pct", "disk_read_bytes_per_s",
    "disk_write_bytes_per_s", "net_receive_bytes_per_s", "net_transmit_bytes_per_s",
)  # fmt: skip
MEMORY = (
    "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 300 kB\nBuffers: 1 kB\nCached: 200 kB\nActive: 100 kB\nInactive:"
    " 100 kB\nShmem: 1 kB\n"
)
LEVELS = ("cpu_count", "mem_used_bytes", "mem_total_bytes", "swap_used_bytes")


class Host:
    """A /proc and a /sys in a folder, and a clock that goes when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys, self.now_s = folder / "proc", folder / "sys", 1000.0
        self.meter = HostMeter(str(self.proc), str(self.sys), lambda: self.now_s)
        self.cpu(user=1000, idle=9000)
        self.write(
            "proc/meminfo",
            MEMORY + "SwapTotal: 50 kB\nSwapFree: 20 kB\n",
        )
        self.write("proc/vmstat", "pswpin 0\npswpout 0\n")
        for resource in ("cpu", "memory", "io"):
            self.pressure(resource, 0)
        self.disks({"sda": (100, 50)})
        self.interface("eth0", 1000, 2000)

    def write(self, path: str, text: str) -> None:
        file = self.proc.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def cpu(self, user: int = 0, idle: int = 0, iowait: int = 0, steal: int = 0, guest: int = 0) -> None:
        line = f"cpu  {user} 0 0 {idle} {iowait} 0 0 {steal} {guest} 0\n"
        self.write("proc/stat", line + "cpu0 1 1 1 1 1 1 1 1 1 1\nintr 9" + " 0" * 5000 + "\n")

    def pressure(self, resource: str, total_us: int) -> None:
        text = (
            f"some avg10=1.00 avg60=2.00 avg300=3.00 total={total_us}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
        )
        self.write(f"proc/pressure/{resource}", text)

    def disks(self, sectors: Mapping[str, tuple[int, int]], *, without_device: tuple[str, ...] = ()) -> None:
        lines = [
            f"   8  {number} {name} 11 22 {read} 33 44 55 {written} 66 0 77 88 0 0 0 0 0 0"
            for number, (name, (read, written)) in enumerate(sectors.items())
        ]
        self.write("proc/diskstats", "\n".join(lines) + "\n")
        for name in sectors:
            folder = self.sys / "block" / name
            (folder if name in without_device else folder / "device").mkdir(parents=True, exist_ok=True)

    def interface(self, name: str, received: int, sent: int, *, device: bool = True) -> Path:
        folder = self.sys / "class/net" / name
        self.write(f"sys/class/net/{name}/statistics/rx_bytes", f"{received}\n")
        self.write(f"sys/class/net/{name}/statistics/tx_bytes", f"{sent}\n")
        if device:
            (folder / "device").mkdir(exist_ok=True)
        return folder

    def row(self, elapsed_s: float = 10.0, interval_ms: int = INTERVAL_MS) -> dict[str, int | float | None]:
        self.now_s += elapsed_s
        return self.meter.row(START_MS, interval_ms)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_first_row_has_levels_and_no_rates(host: Host) -> None:
    row = host.row()
    assert (row["time"], row["interval_ms"]) == (START_MS, INTERVAL_MS)
    assert [row[name] for name in LEVELS] == [psutil.cpu_count(), 700 * 1024, 1000 * 1024, 30 * 1024]
    assert [row.get(name) for name in RATES] == [None] * len(RATES)


def test_waiting_for_io_is_idle_and_what_the_hypervisor_took_is_not(host: Host) -> None:
    host.cpu(user=1000, idle=9000, iowait=100, steal=10, guest=500)
    host.row()
    host.cpu(
        user=1200, idle=9500, iowait=300, steal=110, guest=700
    )  # 200 busy, of them all in a guest; 100 stolen; 700 idle
    assert host.row()["cpu_util_pct"] == 30.0


def test_pressure_is_the_share_of_the_time_since_the_row_before(host: Host) -> None:
    host.row()
    host.pressure("cpu", 5_000_000)
    host.pressure("memory", 1)
    host.pressure("io", 20_000_000)  # a little more than all of it: the kernel's clock is another one
    row = host.row(elapsed_s=12.5)
    assert (row["cpu_pressure_pct"], row["mem_pressure_pct"], row["io_pressure_pct"]) == (40.0, 0.0, 100.0)


def test_disks_are_counted_whole_and_once(host: Host) -> None:
    layers = ("loop0", "zram0", "dm-0", "md0", "ram0")
    before = {"sda": (0, 0), "sda1": (0, 0), "nvme0n1": (8, 8), "nvme0n1p1": (0, 0), **dict.fromkeys(layers, (0, 0))}
    host.disks(before, without_device=(*layers, "sda1", "nvme0n1p1"))
    host.row()
    host.disks(
        {name: (read + 200, written + 100) for name, (read, written) in before.items()},
        without_device=(*layers, "sda1", "nvme0n1p1"),
    )
    row = host.row()
    assert row["disk_read_bytes_per_s"] == 2 * 200 * 512 / 10
    assert row["disk_write_bytes_per_s"] == 2 * 100 * 512 / 10


@pytest.mark.parametrize("head_counts", [True, False], ids=["counted at the head", "counted at the paths"])
def test_an_nvme_namespace_with_several_paths_is_counted_once(host: Host, *, head_counts: bool) -> None:
    def sectors(moved: int) -> dict[str, tuple[int, int]]:
        head = (2 * moved, 2 * moved) if head_counts else (0, 0)
        return {"nvme2n1": head, "nvme2c0n1": (moved, moved), "nvme2c1n1": (moved, moved)}

    host.disks(sectors(1000))
    host.row()
    host.disks(sectors(1100))
    assert host.row()["disk_read_bytes_per_s"] == 200 * 512 / 10


def test_bytes_are_counted_at_the_network_cards_and_once(host: Host) -> None:
    def moved(more: int) -> None:
        for name in ("lo", "bond0", "br0", "vethab12", "docker0", "eth0.100"):
            host.interface(name, more, more, device=False)
        host.interface("eth0", 1000 + more, 2000)
        host.interface("eth1", more, more)
        host.interface("ib0", more, more)
        host.interface("enP1s2", more, more)  # under eth1, as on Azure, whose bytes are in eth1's
        host.interface("eth2", more, more)  # represents a virtual function of eth0

    moved(0)
    for slave, master in (("eth0", "bond0"), ("enP1s2", "eth1")):
        (host.sys / "class/net" / slave / "master").symlink_to(host.sys / "class/net" / master)
    host.write("sys/class/net/eth2/phys_port_name", "pf0vf3\n")
    host.row()
    moved(100_000)
    row = host.row()
    assert (row["net_receive_bytes_per_s"], row["net_transmit_bytes_per_s"]) == (3 * 10_000, 2 * 10_000)


@pytest.mark.parametrize(
    ("column", "file", "text"),
    [
        ("cpu_util_pct", "proc/stat", "cpu  900 0 0 8000 0 0 0 0 0 0\n"),
        ("cpu_pressure_pct", "proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=-5\n"),
        ("disk_read_bytes_per_s", "proc/diskstats", "8 0 sda 1 1 99 1 1 1 50 1 0 1 1\n"),
        ("disk_write_bytes_per_s", "proc/diskstats", "8 0 sda 1 1 100 1 1 1 49 1 0 1 1\n"),
        ("net_receive_bytes_per_s", "sys/class/net/eth0/statistics/rx_bytes", "999\n"),
        ("net_transmit_bytes_per_s", "sys/class/net/eth0/statistics/tx_bytes", "0\n"),
    ],
)
def test_a_counter_that_goes_back_is_unknown_once(host: Host, column: str, file: str, text: str) -> None:
    host.row()
    assert host.row()[column] in {0, None}  # no time has passed for the CPUs
    kept = (host.proc.parent / file).read_text(encoding="utf-8")
    host.write(file, text)
    assert host.row()[column] is None
    host.write(file, kept)
    host.row()
    assert host.row()["disk_read_bytes_per_s"] == 0


def test_a_disk_that_comes_or_goes_makes_one_row_unknown(host: Host) -> None:
    host.row()
    host.disks({"sda": (300, 50), "sdb": (4000, 0)})
    assert host.row(elapsed_s=10)["disk_read_bytes_per_s"] == 200 * 512 / 10  # not yet looked for
    rows = [host.row()["disk_read_bytes_per_s"] for _ in range(6)]
    assert rows.count(None) == 1
    host.disks({"sdb": (4000, 0)})
    assert host.row()["disk_read_bytes_per_s"] is None


@pytest.mark.parametrize("elapsed_s", [0.0, -5.0, 20.0, 86_400.0])
def test_a_mean_over_another_time_than_the_rows_is_no_mean_of_it(host: Host, elapsed_s: float) -> None:
    host.row()
    host.cpu(user=2000, idle=9000)
    row = host.row(elapsed_s)
    assert [row.get(name) for name in RATES] == [None] * len(RATES)
    assert row["mem_total_bytes"] == 1000 * 1024
    host.cpu(user=2500, idle=9500)
    assert host.row()["cpu_util_pct"] == 50.0


def test_nothing_there_is_all_unknown(tmp_path: Path) -> None:
    meter = HostMeter(str(tmp_path / "proc"), str(tmp_path / "sys"))
    rows = [meter.row(START_MS, INTERVAL_MS) for _ in range(2)]
    assert all(row.get(name) is None for row in rows for name in (*RATES, *LEVELS) if name != "cpu_count")


@given(garbage=st.one_of(st.binary(max_size=300), st.text(max_size=100).map(str.encode)), data=st.data())
def test_garbage_is_unknown_and_never_an_error(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, data: st.DataObject
) -> None:
    host = Host(tmp_path_factory.mktemp("host"))
    host.row()
    files = sorted(path for path in host.proc.parent.rglob("*") if path.is_file())
    data.draw(st.sampled_from(files)).write_bytes(garbage)
    row = host.row()
    for name in (*RATES, *LEVELS):
        value = row.get(name)
        assert value is None or 0 <= value < 2**63


@pytest.mark.parametrize(
    "told",
    ["", "MemAvailable: 0 kB\n", "MemAvailable: 1001 kB\n"],
    ids=["kernels before 3.14", "nothing", "more than there is"],
)
def test_memory_of_which_the_kernel_does_not_tell_what_is_available_is_not_estimated(host: Host, told: str) -> None:
    host.write("proc/meminfo", MEMORY.replace("MemAvailable: 300 kB\n", told) + "SwapTotal: 50 kB\nSwapFree: 20 kB\n")
    row = host.row()
    assert [row[name] for name in LEVELS] == [psutil.cpu_count(), None, 1000 * 1024, 30 * 1024]


def test_a_host_without_swap_uses_none_and_one_without_pressure_does_not_know_it(host: Host) -> None:
    host.write("proc/meminfo", MEMORY + "SwapTotal: 0 kB\nSwapFree: 0 kB\n")
    for resource in ("cpu", "memory", "io"):
        (host.proc / "pressure" / resource).unlink()
    host.row()
    row = host.row()
    assert (row["swap_used_bytes"], row["cpu_pressure_pct"]) == (0, None)


def test_this_host_is_what_psutil_takes_it_for() -> None:
    meter = HostMeter()
    meter.row(START_MS, INTERVAL_MS)
    before = psutil.cpu_times()
    sum(number * number for number in range(3_000_000))
    after = psutil.cpu_times()
    row = meter.row(START_MS, INTERVAL_MS)
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    assert row["cpu_count"] == psutil.cpu_count()
    assert row["mem_total_bytes"] == memory.total
    assert row["mem_used_bytes"] == pytest.approx(memory.total - memory.available, rel=0.3)
    assert row["swap_used_bytes"] == pytest.approx(swap.used, abs=64 * 2**20)
    deltas = {name: getattr(after, name) - getattr(before, name) for name in after._fields if "guest" not in name}
    busy_pct = 100 * (1 - (deltas["idle"] + deltas["iowait"]) / sum(deltas.values()))
    assert row["cpu_util_pct"] == pytest.approx(busy_pct, abs=25)
    present = {Path(path).parent.name for path in map(str, Path("/sys/block").glob("*/device"))}
    assert (row["disk_read_bytes_per_s"] is None) == (not present)
