"""The agent's rows under work that looks idle, and under idleness that looks like work.

`python -m benchmarks.busy_hardware DIR [ROWS.json]` reads what `benchmarks/hardware_doubtful.sh DIR` measured, and
prints the table for docs/measured-on-hardware.md. It writes the rows of each kind of work to ROWS.json, without the
names of host and GPU: curves for tests.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import polars as pl

from benchmarks.hardware import lake_rows, mean_of
from tests.fakes.nvml.load_phases import load_phases

SHOWN = {
    "gpu_util_pct": "`gpu_util_pct`",
    "sm_active_pct": "SM, %",
    "tensor_active_pct": "tensor, %",
    "fp64_active_pct": "FP64, %",
    "dram_active_pct": "DRAM, %",
    "mem_util_pct": "`mem_util_pct`",
    "pcie_rx_bytes_per_s": "PCIe in, MB/s",
    "power_w": "power, W",
    "mem_used_bytes": "memory, GiB",
    "process_count": "processes",
}
"""Columns of the agent's rows, and their headings."""
PER = {"pcie_rx_bytes_per_s": 1e-6, "mem_used_bytes": 2**-30}


def main(folder: Path, fixture: Path | None) -> None:
    """Print the means of each kind of work, and write its rows."""
    rows = lake_rows(folder / "lake/gpu")
    print("| work | a kernel ran, % | " + " | ".join(SHOWN.values()) + " |\n" + "|---" * (len(SHOWN) + 2) + "|")
    kept = {}
    for phase in load_phases(folder / "phases.jsonl"):
        own = rows.filter(pl.col("time").is_between(phase.begin, phase.end, closed="left"))
        means = {name: mean_of(own, name) * PER.get(name, 1) for name in SHOWN}
        cells = ["-" if math.isnan(value) else f"{value:.1f}" for value in means.values()]
        print(f"| {phase.name} | {phase.busy_pct:.1f} | " + " | ".join(cells) + " |")
        kept[phase.name] = own.select(
            "interval_ms", "gpu_util_max_pct", "gpu_util_zero_ratio", "energy_mj", *SHOWN
        ).to_dicts()
    if fixture is not None:
        fixture.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
