"""What the proofs stand on: the servers have exactly what the exporters exposed, with the gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.scraped.exposed import parsed
from tests.scraped.replayer import Replayer, replayed
from tests.scraped.servers import ScrapeJob

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scraped.replayer import Exposure
    from tests.scraped.servers import MetricsProcess

pytestmark = pytest.mark.long
_PAGE = """# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",Hostname="n1"} 5
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",Hostname="n1"} 65.25
"""


def test_a_server_has_what_was_exposed_and_nothing_for_the_time_that_it_was_away(
    server_type: type[MetricsProcess], tmp_path: Path
) -> None:
    exporter = Replayer(replayed(_PAGE, lambda sample, number: (sample.value or 0) + number))
    server = server_type(tmp_path / "server", [ScrapeJob("dcgm", (exporter.target,))])
    with exporter, server:
        exporter.wait_for(3)
        with exporter.away():
            exporter.wait_for(2)
        exporter.wait_for(2)
        with exporter.away():  # what is exposed to a server that is being stopped may not be kept
            exporter.wait_for(1)
            server.stop()
        server.start()
        exporter.wait_for(2)
        with exporter.away():
            exporter.wait_for(1)
            kept = {sample.name: server.kept(sample.name) for sample in parsed(_PAGE)}
        for name, samples in kept.items():
            assert [(each.labels, each.value) for each in samples] == exposed(exporter.exposures, name)
            times, answered = [each.time_ms for each in samples], [exposure.at_ms for exposure in exporter.exposures]
            # the server's time is that of its asking, which it may set up to 2 ms later for an even grid
            assert all(asked <= at + 2 for asked, at in zip(times, answered, strict=True))
            assert all(at <= asked + 2 for at, asked in zip(answered, times[1:], strict=False))


def exposed(exposures: list[Exposure], name: str) -> list[tuple[tuple[tuple[str, str], ...], float | None]]:
    return [(each.labels, each.value) for exposure in exposures for each in exposure.samples if each.name == name]
