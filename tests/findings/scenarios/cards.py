"""The cards that scenarios are made of."""

from __future__ import annotations

from analytics.simulation.catalog import A100, H100, L40S, V100, SimulatedCard

A100_80 = A100
A100_40 = SimulatedCard(
    "NVIDIA A100-SXM4-40GB", "a100-40", 42_949_672_960, 635_437_056, 400.0, 52.0, 28.0, 36.0, 210, 1410, 1215
)
A30 = SimulatedCard("NVIDIA A30", "a30", 25_769_803_776, 500_000_000, 165.0, 28.0, 20.0, 36.0, 210, 1440, 1215)
L4 = SimulatedCard("NVIDIA L4", "l4", 24_152_899_584, 450_000_000, 72.0, 12.0, 16.0, 40.0, 210, 2040, 6251)
T4 = SimulatedCard("Tesla T4", "t4", 16_106_127_360, 400_000_000, 70.0, 9.0, 17.0, 45.0, 300, 1590, 5001)

__all__ = ["A30", "A100_40", "A100_80", "H100", "L4", "L40S", "T4", "V100", "SimulatedCard"]
