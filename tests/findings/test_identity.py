"""A finding's id: the same next week, different for anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.findings.conftest import BUSY, DAY, FREE, HELD, HOUR, idle_findings, only
from tests.ledger.rows import claim, fill, processes, samples

if TYPE_CHECKING:
    from fallow.lake import Lake


def test_a_held_finding_keeps_its_id_while_the_window_moves_and_gpus_come_and_go(lake: Lake) -> None:
    rows, lists = [], []
    for day in range(4):
        gpu = "ab"[day % 2]
        rows += samples(gpu, day * DAY, day * DAY + 2 * HOUR, every_s=300, **HELD)
        lists += processes(gpu, *range(day * DAY, day * DAY + 2 * HOUR, 300), every_s=300)
    fill(lake, rows, lists)
    ids = {only(lake, f"2026-11-{20 + day}", f"2026-11-{20 + day}").finding_id for day in range(4)}
    assert ids == {only(lake).finding_id}
    assert len(only(lake).gpus) == 2


def test_an_unknown_holders_finding_keeps_its_id_per_gpu(lake: Lake) -> None:
    rows = samples("a", 0, 2 * HOUR, **HELD) + samples("a", DAY, DAY + 2 * HOUR, **HELD)
    fill(lake, rows)
    assert only(lake, until="2026-11-20").finding_id == only(lake, since="2026-11-21").finding_id


def test_a_never_used_finding_keeps_its_id_when_a_gpu_comes_into_use_or_is_reserved(lake: Lake) -> None:
    rows = samples("a", 0, 14 * DAY, every_s=600, **FREE) + samples("b", 0, 8 * DAY, every_s=600, **FREE)
    rows += samples("b", 8 * DAY, 14 * DAY, every_s=600, **BUSY)
    fill(lake, rows, claims=[claim("a", 9 * DAY, None)])
    before, after = only(lake, until="2026-11-27"), only(lake, since="2026-11-30")
    assert (before.gpus, after.gpus) == (("a", "b"), ("a",))
    assert (before.holder, after.holder) == (None, "bob")
    assert before.finding_id == after.finding_id


def test_rules_hosts_and_holders_have_ids_of_their_own(lake: Lake) -> None:
    for host in ("h1", "h2"):
        rows = samples(f"{host}a", 0, 7 * DAY, every_s=600, **FREE) + samples(f"{host}b", 0, 2 * HOUR, **HELD)
        fill(lake, rows, host=host)
    found = idle_findings(lake)
    assert len(found) == len({each.finding_id for each in found}) == 4
    assert all(len(each.finding_id) == 12 and each.finding_id.startswith("F-") for each in found)


def test_the_order_is_the_most_gpu_hours_first_and_then_the_id(lake: Lake) -> None:
    fill(lake, [row for gpu in "abcd" for row in samples(gpu, 0, (1 + ord(gpu) % 2) * 2 * HOUR, **HELD)])
    found = idle_findings(lake)
    assert [each.gpu_hours for each in found] == [4.0, 4.0, 2.0, 2.0]
    assert list(found) == sorted(found, key=lambda each: (-each.gpu_ms, each.finding_id))
