"""What servers scraped is in the lake: every sample once, by value and time, with the gaps, from both servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fakes.nvml import ms_ago, standard_fleet
from tests.in_process import run_in_process
from tests.scraped.exposed import DCGM, NVITOP, facts_in, facts_of
from tests.scraped.servers import Replayer, ScrapeJob, nvitop_exporter, replayed, scraped

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.scraped.exposed import Exposed
    from tests.scraped.servers import MetricsProcess

pytestmark = pytest.mark.long
_RECORDED = Path(__file__).parent / "recorded"


def test_an_import_is_what_dcgm_exporter_exposed(server_type: type[MetricsProcess], tmp_path: Path, lake: Lake) -> None:
    """Two hosts, one with MIG instances, one without profiling fields; one is away for a while, so is the server."""
    first = Replayer(replayed(page("dcgm-exporter"), _changing))
    other_cards = page("dcgm-exporter-slurm", "_PROF_").replace('UUID="GPU-', 'UUID="GPU-f')
    second = Replayer(replayed(other_cards, _changing))
    server = server_type(tmp_path / "server", [ScrapeJob("dcgm", (first.target, second.target))])
    with first, second, server:
        first.wait_for(4)
        with first.away():
            second.wait_for(3)
        first.wait_for(3)
        with first.away(), second.away():  # what is exposed to a server that is being stopped may not be kept
            first.wait_for(1)
            second.wait_for(1)
            server.stop()
        server.start()
        first.wait_for(3)
        with first.away(), second.away():
            first.wait_for(1)
            second.wait_for(1)
            imported_from(server, lake)
            kept = [sample for name in DCGM for sample in server.kept(name)]
    exposures = first.exposures + second.exposures
    exposed = [each for exposure in exposures for each in exposure.samples if each.name in DCGM]
    assert sorted(map(value_of, kept)) == sorted(map(value_of, exposed))
    assert facts_in(lake, DCGM) == facts_of(kept, DCGM)


def test_an_import_is_what_nvitop_exporter_exposed(
    server_type: type[MetricsProcess], tmp_path: Path, lake: Lake
) -> None:
    with nvitop_exporter(standard_fleet(ms_ago(60), [1]), tmp_path) as target:
        exporter = Replayer(lambda _: scraped(target).decode())
        with exporter, server_type(tmp_path / "server", [ScrapeJob("nvitop", (exporter.target,))]) as server:
            exporter.wait_for(8)
            with exporter.away():
                exporter.wait_for(1)
                imported_from(server, lake)
                kept = [sample for name in NVITOP for sample in server.kept(name)]
    exposed = [each for exposure in exporter.exposures for each in exposure.samples if each.name in NVITOP]
    assert len(kept) == len(exposed) > 8 * len(NVITOP)
    assert facts_in(lake, NVITOP) == facts_of(kept, NVITOP)


def page(name: str, *without: str) -> str:
    """A recorded page without the lines in which one of these words is."""
    lines = (_RECORDED / f"{name}.prom").read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not any(word in line for word in without))


def value_of(sample: Exposed) -> tuple[object, ...]:
    return sample.name, sample.labels, sample.value


def imported_from(server: MetricsProcess, lake: Lake, *flags: str) -> None:
    server.has_all()
    done = run_in_process(
        "import", "prometheus", "--url", server.url, "--since", "1h", "--lake", lake.root, "--yes", *flags
    )
    assert done.returncode == 0, done.stderr


def _changing(sample: Exposed, number: int) -> float:
    """Another value at every exposure, and none that a float32 does not hold."""
    assert sample.value is not None
    step = {"energy_mj": 1234.0, "pcie_tx_bytes_per_s": 2.0**20, "pcie_rx_bytes_per_s": 2.0**20}
    column, factor = DCGM.get(sample.name, ("", 1))
    if factor == 100:
        return (number * 7 % 100) / 100
    if column.endswith("_pct"):
        return float(number * 13 % 101)
    return float(round(sample.value)) + number * step.get(column, 1.0)
