"""The cost of a metrics server's samples up to the lake: reading, conversion to rows, writing Parquet."""

from __future__ import annotations

import tempfile
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.importers.model import Imported
from analytics.importers.publish import publish
from analytics.mapping.mapping_file import load_exporters
from analytics.scraped.reading import joined
from analytics.scraped.rows.model import RowSettings
from analytics.scraped.rows.scraped_rows import host_rows
from benchmarks.measure import Figure, timed
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analytics.scraped.samples import Samples
    from analytics.scraped.server.metrics_server import WayOfReading

FLEET_GPUS, FLEET_DAYS, FLEET_METRICS = 10_000, 30, 6
DAY_MS = 86_400_000


def bill(name: str, reader: WayOfReading, selector: str, window: range) -> Iterator[Figure]:
    """Yield the costs of the three steps for a window (its step is the scrape interval) and a large fleet's month."""
    edges = [window.start + (window.stop - window.start) * number // 4 for number in range(5)]

    def read() -> Samples:
        return joined(reader.parse(reader.fetch(selector, start, end), start, end) for start, end in pairwise(edges))

    samples, exporters = read(), load_exporters()
    number = samples.frame.height

    def rows() -> list[Imported]:
        return host_rows(samples, exporters, RowSettings(window.start, window.stop))

    hosts = rows()
    with tempfile.TemporaryDirectory() as folder:
        runs = count()

        def write() -> None:
            lake = made_lake(Path(folder) / str(next(runs)))
            for host in hosts:
                publish(lake, Imported(host.host, host.gpu, host.device, (), "as scraped", "UTC"))

        spent = {step: timed(work)[0] for step, work in (("read", read), ("rows", rows), ("write", write))}
    how = f"{number:,} samples, {name}, median of 3, our CPU seconds"
    for step, cpu in spent.items():
        yield Figure(f"scraped_bill_{name}_{step}_samples_per_cpu_s", number / cpu, "samples/s", f"{step}: {how}")
    whole = sum(spent.values())
    yield Figure(f"scraped_bill_{name}_samples_per_cpu_s", number / whole, "samples/s", f"read, rows and write: {how}")
    month = FLEET_GPUS * FLEET_METRICS * FLEET_DAYS * DAY_MS // window.step
    yield Figure(
        f"scraped_bill_{name}_month_cpu_h", month * whole / number / 3600, "h",
        f"{FLEET_GPUS:,} GPUs x {FLEET_DAYS} days x {FLEET_METRICS} metrics every {window.step // 1000} s"
        f" ({month:,} samples), extrapolated",
    )  # fmt: skip
