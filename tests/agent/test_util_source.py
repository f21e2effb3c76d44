"""The utilization of a row has one source, and no column contradicts another, whichever of GPM, ring, rates exist."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from agent.nvml.utilization import with_gpm
from tests.agent.lanes import PAST_S, Lanes, of
from tests.fakes.nvml import Fault, Gpu, Steps, constant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.fakes.nvml.faults import FaultKind

    MakeLanes = Callable[..., Lanes]

RING, RATES, GPM = "nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates", "nvmlGpmSampleGet"
STEP_MS = 2000
INTERVALS = 6


@dataclass(frozen=True)
class Card:
    """What a card has, and what of it fails on the way; `noise` are impossible entries in the ring."""

    gpm: bool
    ring: bool
    rates: bool
    gpm_fails: tuple[float, float] | None = None
    ring_is_slow: bool = False
    noise: bool = False

    def faults(self, index: int) -> list[Fault]:
        kind: FaultKind = "not_supported"
        found = [Fault(kind, index, call) for call, has in ((RING, self.ring), (RATES, self.rates)) if not has]
        if self.gpm_fails is not None:
            start_s, end_s = self.gpm_fails
            found.append(Fault("unknown", index, GPM, PAST_S + start_s, PAST_S + end_s))
        if self.ring_is_slow:
            found.append(Fault("slow", index, RING, delay_s=0.3))
        return found


def gpu(number: int, card: Card, util: Steps) -> Gpu:
    gpm = {2: constant(1)} if card.gpm else {}
    return Gpu(f"GPU-{number}", util=util, mem_util=util, gpm=gpm, ring_garbage=card.noise)


def assert_consistent(row: dict[str, Any]) -> None:
    source, mean, most = row["util_source"], row.get("gpu_util_pct"), row.get("gpu_util_max_pct")
    within, zero, covered = (
        row.get("gpu_util_p98_pct"),
        row.get("gpu_util_zero_ratio"),
        row.get("gpu_util_coverage_ratio"),
    )
    where = str(row)
    assert {most is None, within is None, zero is None} in ({True}, {False}), where
    assert source in ("gpm", "samples", "rates", "none"), where
    if mean is None:
        assert most is None, where
        assert not covered, where
        return
    assert 0 <= mean <= 100, where
    assert 0 < covered <= 1, where
    if source == "gpm":
        assert (most is None) == (mean > 0), where
    else:
        assert most is not None, where
    if most is None:
        return
    assert mean <= most <= 100, where
    assert within <= most, where
    assert 0 <= zero <= 1, where
    assert (zero == 1) == (mean == 0) == (most == 0), where
    assert mean <= most * (1 - zero) + 0.02, where


def play(lanes: Lanes, cards: Sequence[Card]) -> dict[int, list[dict[str, Any]]]:
    rows: dict[int, list[dict[str, Any]]] = {number: [] for number in range(len(cards))}
    for _ in range(INTERVALS):
        answer = lanes.row()
        for number, found in rows.items():
            found.append(of(answer, f"GPU-{number}"))
    for found in rows.values():
        for row in found:
            assert_consistent(row)
    return rows


CARDS = tuple(Card(*has) for has in product((True, False), repeat=3))
TROUBLED = (
    Card(gpm=True, ring=False, rates=True, gpm_fails=(5, 9)),
    Card(gpm=True, ring=True, rates=True, gpm_fails=(5, 9), noise=True),
    Card(gpm=True, ring=True, rates=True, noise=True),
)
WORK = (
    constant(0),
    constant(60),
    Steps(((0, 0.004), (PAST_S + 4, 0.3), (PAST_S + 8, 0))),
    Steps(tuple((tenth / 20, 100.0 if tenth % 7 == 0 else 0.0) for tenth in range(1600))),
)


@pytest.mark.parametrize("util", WORK, ids=["idle", "busy", "hardly", "bursts"])
def test_no_column_contradicts_another(lanes: MakeLanes, util: Steps) -> None:
    every = (*CARDS, *TROUBLED)
    gpus = [gpu(number, card, util) for number, card in enumerate(every)]
    faults = tuple(fault for number, card in enumerate(every) for fault in card.faults(number))
    rows = play(lanes(*gpus, faults=faults, step_ms=STEP_MS), every)
    for number, card in enumerate(every):
        settled = rows[number][2:]
        sources = {row["util_source"] for row in settled}
        if card.ring and card.rates:
            assert sources == {"samples"}
        elif card.ring:
            assert sources <= {"samples", "gpm"}, "a silent ring without a rate tells nothing"
        elif card.gpm and card.gpm_fails is None:
            assert sources == {"gpm"}
        elif not card.gpm:
            assert sources == {"rates" if card.rates else "none"}
        if util is WORK[0] and (card.rates or (card.gpm_fails is None and card.gpm)):
            assert all(row["gpu_util_pct"] == row["gpu_util_max_pct"] == 0 for row in settled), "idle is said in full"


def calls(lanes: Lanes, gpu_count: int) -> list[float]:
    """Driver calls for each GPU in each of some intervals."""
    return [lanes.row(lists=False)["costs"]["nvml_calls"] / gpu_count for _ in range(4)]


def test_rates_are_read_every_second_only_where_nothing_better_sees_it(lanes: MakeLanes) -> None:
    """Per interval of ten seconds; three reads are those of a ring's drains."""
    no_ring = tuple(Fault("not_supported", number, RING) for number in (0, 1))
    host = lanes(gpu(0, CARDS[0], constant(60)), gpu(1, CARDS[0], constant(60)), faults=no_ring, step_ms=10_000)
    spared = calls(host, 2)
    assert spared[0] > spared[2] + 5, "the first interval has no average yet"
    without = tuple(Fault("not_supported", number, RING) for number in (0, 1, 2))
    host = lanes(*(gpu(number, CARDS[4], constant(60)) for number in range(3)), faults=without[:1], step_ms=10_000)
    eager = calls(host, 3)
    assert eager[2] - spared[2] < 5, "one card without a ring has the others drained no more often"


def test_rates_are_read_again_where_gpm_fails(lanes: MakeLanes) -> None:
    faults = (Fault("not_supported", 0, RING), Fault("unknown", 0, GPM, PAST_S + 35, PAST_S + 65))
    host = lanes(gpu(0, CARDS[0], constant(60)), faults=faults, step_ms=10_000)
    rows = [of(host.row(), "GPU-0") for _ in range(8)]
    assert [row["util_source"] for row in rows] == ["rates", "gpm", "rates", "rates", "rates", "rates", "gpm", "gpm"]
    assert {row["gpu_util_pct"] for row in rows} == {60}
    assert rows[2]["gpu_util_coverage_ratio"] < 0.06, "three moments"
    assert rows[3]["gpu_util_coverage_ratio"] > 0.15, "one a second again"


def test_a_lost_gpu_has_nobody_look_every_second(lanes: MakeLanes) -> None:
    faults = (Fault("not_supported", 0, RING), Fault("lost", 0, start_s=PAST_S + 15))
    host = lanes(gpu(0, CARDS[4], constant(60)), gpu(1, CARDS[4], constant(0)), faults=faults, step_ms=10_000)
    busy = calls(host, 1)
    assert busy[3] < busy[0] / 2


RING_ROW: dict[str, Any] = {
    "interval_ms": 10_000, "offset_ms": 0, "util_source": "samples", "gpu_util_pct": 0.0, "gpu_util_max_pct": 0,
    "gpu_util_p98_pct": 0, "gpu_util_zero_ratio": 1.0, "gpu_util_coverage_ratio": 1.0, "gpu_util_unsampled_ratio": 1.0,
    "mem_util_pct": 0.0,
}  # fmt: skip
GPM_ROW: dict[str, Any] = {"util_source": "gpm", "offset_ms": 250, "gpu_util_pct": 30.0, "gpu_util_coverage_ratio": 1.0,
                           "sm_active_pct": 7.0}  # fmt: skip


@pytest.mark.parametrize(
    ("ring", "seen_pct", "source"),
    [
        ({}, 30.0, "gpm"),
        ({}, 0.3, "samples"),
        ({}, 0.5, "gpm"),
        ({"gpu_util_pct": 26.0, "gpu_util_max_pct": 90, "gpu_util_zero_ratio": 0.5}, 30.0, "samples"),
        ({"gpu_util_pct": 20.0, "gpu_util_max_pct": 90, "gpu_util_zero_ratio": 0.5}, 30.0, "gpm"),
        ({"gpu_util_pct": 90.0, "gpu_util_max_pct": 90, "gpu_util_zero_ratio": 0.0}, 30.0, "samples"),
        ({"gpu_util_coverage_ratio": 0.9}, 0.0, "gpm"),
        ({"util_source": "rates", "gpu_util_coverage_ratio": 0.17}, 0.0, "gpm"),
    ],
)
def test_the_ring_counts_where_it_saw_all_and_nothing_denies_it(
    ring: dict[str, Any], seen_pct: float, source: str
) -> None:
    row = with_gpm(RING_ROW | ring, GPM_ROW | {"gpu_util_pct": seen_pct})
    assert row["util_source"] == source
    assert row["sm_active_pct"] == 7
    assert row["offset_ms"] == (250 if source == "gpm" else 0)
    assert (row["mem_util_pct"] is None) == (ring.get("util_source") == "rates"), "a few moments are no mean"
