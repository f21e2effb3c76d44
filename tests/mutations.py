"""`make mutations`: break rules, ledger and agent on purpose, one place at a time; list the breaks that tests notice.

It works on a copy of the checkout. Tests that fail without any break notice nothing: they are run unbroken first.
Arguments are parts of the broken files' names: `python -m tests.mutations ledger held`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Mutation:
    """A text that stands once in a file, what stands there instead, and the tests of `make test` that have to fail."""

    file: str
    text: str
    broken: str
    tests: str


def _mutations(table: str) -> Iterator[Mutation]:
    for row in table.strip().splitlines():
        if not row.startswith("#"):
            yield Mutation(*(field.replace(r"\n", "\n") for field in row.split(" :: ")))


MUTATIONS = tuple(
    _mutations("""
# rules
analytics/rules/held.py :: context.settings.held_min_ms <= SEGMENT_MS :: \
2 * context.settings.held_min_ms <= SEGMENT_MS :: tests/promises/test_findings.py
analytics/workloads/window_end.py :: if last_seen.get(gpu) == end: :: if gpu in last_seen: :: \
tests/promises/test_findings.py
analytics/rules/left_free.py :: FREE_MIN_MS = 14 * DAY_MS :: FREE_MIN_MS = 7 * DAY_MS :: \
tests/findings/test_idle_rules.py
analytics/rules/hoarding.py :: SHARE_MAX = 0.5 :: SHARE_MAX = 0.8 :: tests/findings/test_pool_rules.py
analytics/rules/low_efficiency.py :: EFFICIENCY_MAX = 0.25 :: EFFICIENCY_MAX = 0.5 :: \
tests/findings/test_at_work_rules.py
analytics/rules/blind_spot.py :: silent = pl.col("last_seen") <= :: silent = pl.col("last_seen") > :: \
tests/findings/test_pool_rules.py
analytics/rules/never_used.py :: (pl.col("used_ms") == 0) &  ::  :: tests/findings/test_idle_rules.py
analytics/workloads/lifetables.py :: OLD_ENOUGH = 0.25 :: OLD_ENOUGH = 0.0 :: tests/findings/test_persistence.py
analytics/workloads/model.py :: or self.probability < MEDIUM_MIN :: or self.probability < 0.5 :: \
tests/promises/test_findings.py
analytics/workloads/persistence.py :: worst = min(promised, :: worst = max(promised, :: \
tests/findings/test_persistence.py
analytics/workloads/persistence.py :: if len(promised) < len(found) or not promised: :: if not promised: :: \
tests/findings/test_persistence.py
analytics/workloads/runs.py :: AT_ONCE_RATIO = 0.97 :: AT_ONCE_RATIO = 0.5 :: tests/findings/test_server_rules.py
analytics/workloads/held_evidence.py :: (pl.col("first_parent_pid") > 1) :: pl.lit(value=True) :: \
tests/findings/test_held.py
analytics/decide/reversals.py :: (SPAN_MS - pl.col("unconfirmed_ms")) :: SPAN_MS :: tests/findings/test_reversals.py
analytics/decide/decisions.py :: .sort("piece", "place") :: .sort("piece", "place", descending=[False, True]) :: \
tests/promises/test_recommendations.py
analytics/decide/decisions.py :: pl.col("segment_ms") >= pl.col("least_ms") :: pl.lit(value=True) :: \
tests/promises/test_recommendations.py
analytics/decide/decisions.py :: else tuple(gpu for gpu in each.gpus_now if gpu not in self._taken) :: \
else each.gpus_now :: tests/promises/test_recommendations.py
analytics/decide/recommendations.py :: self.value.freed.point > 0 :: self.value.freed.point >= 0 :: \
tests/promises/test_recommendations.py
analytics/decide/decisions.py ::             self._taken.update(wanted)\\n ::  :: tests/promises/test_recommendations.py
analytics/decide/decisions.py :: if not theirs.isdisjoint(self._users.get(gpu, theirs)) ::  :: \
tests/promises/test_findings.py
analytics/decide/lifecycle.py :: expires_ms <= as_of_ms :: expires_ms < as_of_ms :: \
tests/promises/test_recommendations.py
analytics/workloads/window_end.py :: return (pl.col("end") > context.until_ms - SILENT_AFTER_MS) :: \
return (pl.col("end") >= context.until_ms - SILENT_AFTER_MS) :: tests/promises/test_findings.py
analytics/workloads/context.py :: < SILENT_AFTER_MS :: <= SILENT_AFTER_MS :: tests/promises/test_findings.py
# money and parts
analytics/money/priced_segments.py :: (2 * amount + MICROCENTS) // :: (2 * amount + MICROCENTS - 1) // :: \
tests/promises/test_recommendations.py
analytics/money/priced_segments.py :: -(amounts[key] % MICROCENTS), key :: amounts[key] % MICROCENTS, key :: \
tests/promises/test_recommendations.py
analytics/scope.py :: gpu_share=pl.col("gpu_share") * part :: gpu_share=pl.col("gpu_share") :: \
tests/promises/test_access.py
analytics/decide/review.py :: return others or strangers or :: return others or :: tests/promises/test_access.py
analytics/delivery/nudges.py :: or (None if JOINER in (joined or "") else joined) :: or joined :: \
tests/promises/test_nudges.py
analytics/capacity/jobs.py :: (over >= until_ms) :: (over > until_ms) :: tests/promises/test_queue.py
# ledger
analytics/ledger/sampled.py :: flat.all(ignore_nulls=False).over(whole) :: flat.any(ignore_nulls=False).over(whole) :: \
tests/ledger/test_sampled.py
analytics/ledger/sampled.py :: segments.filter(pl.col("gpu_share") == 1) :: segments :: tests/ledger/test_sampled.py
fallow/stall_evidence.py :: NO_CONTEXT_BYTES = 64 * 2**20 :: NO_CONTEXT_BYTES = 2**30 :: tests/ledger/test_states.py
analytics/ledger/day_segments.py :: label[in_use & alike.zero & long] = HELD :: label[in_use & long] = HELD :: \
tests/ledger/test_states.py
analytics/ledger/day_segments.py :: (idle.length >= settings.idle_after_ms) :: \
(idle.length > settings.idle_after_ms) :: tests/promises/test_ledger.py
analytics/ledger/day_processes.py :: (np.abs(time - self.time[at]) <= self.reach[at]) :: \
(np.abs(time - self.time[at]) < self.reach[at]) :: tests/promises/test_ledger.py
analytics/ledger/day_rows.py :: (step <= schema.GAP_INTERVALS * interval[:-1]) :: \
(step < schema.GAP_INTERVALS * interval[:-1]) :: tests/promises/test_ledger.py
analytics/ledger/day_stalls.py :: agree >= 2 :: agree >= 1 :: tests/ledger/test_stalls.py
analytics/ledger/card_use.py :: pl.col("own_ms") >= HOUR_MS :: pl.col("own_ms") > 0 :: tests/money/test_card_use.py
analytics/contradictions/verdicts.py :: if _is_alone(rows, run): :: if False: :: tests/ledger/test_contradictions.py
analytics/ledger/day_stalls.py :: | (agree == 0) :: & (agree == 0) :: tests/ledger/test_stalls.py
analytics/ledger/stitch.py :: pl.col("unworked_ms") >= least_ms :: pl.col("unworked_ms") < least_ms :: \
tests/ledger/test_states.py
analytics/ledger/stitch.py :: pl.col("unworked_ms") >= least_ms :: pl.col("unworked_ms") > least_ms :: \
tests/promises/test_ledger.py
analytics/ledger/stitch.py :: descending=[False, True, False, False] :: descending=[False, False, False, False] :: \
tests/ledger/test_hosts.py
analytics/states.py :: OCCUPIED = ("held", "stalled", *IN_USE) :: OCCUPIED = IN_USE :: \
tests/ledger/test_state_sets.py tests/capacity
# agent
agent/supervise/supervisor.py ::             return start_ms + late * self._settings.interval_ms :: \
            return start_ms :: tests/agent/test_supervisor.py
agent/supervise/supervisor.py ::             if self._clock.now_ms() < start_ms:  # ::             if False:  # :: \
tests/agent/test_supervisor.py
agent/supervise/control.py :: self._until_ms = None if for_ms is None else self._clock.now_ms() + for_ms :: \
self._until_ms = None :: tests/agent/test_supervisor.py
agent/supervise/workers.py :: _CRASHES = 2  # :: _CRASHES = 3  # :: tests/agent/test_faults.py
agent/supervise/fleet.py ::             self._retry_in -= 1\\n ::             pass\\n :: tests/agent/test_faults.py
agent/nvml/ring.py :: * 10 <= min(self._slow_steps) * 11 :: * 10 < min(self._slow_steps) * 11 :: \
tests/promises/test_agent.py
agent/nvml/ring.py :: * 10 <= min(self._slow_steps) * 11 :: * 10 <= min(self._slow_steps) * 12 :: \
tests/promises/test_agent.py
analytics/scraped/rows/pace.py :: _NEAR = 0.05 :: _NEAR = 0.0499 :: tests/promises/test_agent.py
analytics/scraped/rows/pace.py :: pl.col("scrape_ms") // 4 :: pl.col("scrape_ms") // 3 :: tests/promises/test_agent.py
agent/spool/publishing.py :: (now_s if self._failures else self._started_s) :: self._started_s :: \
tests/promises/test_lake.py
agent/spool/publishing.py :: min(self._failures - 1, 20) :: 0 :: tests/promises/test_lake.py
fallow/leases.py :: if others and others[0].key < mine.key: :: if others and others[0].key > mine.key: :: \
tests/promises/test_lake.py
fallow/leases.py :: self._stored_s < self._times.sure_s :: self._stored_s <= self._times.sure_s :: \
tests/promises/test_lake.py
agent/supervise/sources.py :: if value < before: :: if value > before: :: tests/agent/test_epochs.py
agent/spool/spool.py :: WHERE seq > :mark AND seq <= :until GROUP :: WHERE seq >= :mark AND seq <= :until GROUP :: \
tests/agent/test_spool.py tests/agent/test_publisher.py
agent/attribution/masking.py :: _LAST_PART = frozenset({"key", "keys"}) :: _LAST_PART = frozenset({"keys"}) :: \
tests/agent/test_attribution_masking.py
agent/attribution/placement.py :: r"(?:/step_(?P<step>[0-9A-Za-z_+]+))?(?![^/])" :: \
r"(?:/step_(?P<step>[0-9]+))?(?![^/])" :: tests/agent/test_attribution_cgroup.py
""")
)
"""Of each the file, the text, what stands there instead, and the tests."""


def main(parts: list[str]) -> int:
    """Prints a line for each mutation; 1 where one is not noticed, or the tests fail anyway."""
    chosen = [each for each in MUTATIONS if not parts or any(part in each.file for part in parts)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "fallow"
        copy_checkout(copy)
        if not passes(copy, sorted({path for each in chosen for path in each.tests.split()})):
            print("the tests fail without any mutation")
            return 1
        unnoticed = sum(not is_noticed(copy, each) for each in chosen)
    print(f"{len(chosen) - unnoticed} of {len(chosen)} mutations noticed")
    return int(bool(unnoticed))


def copy_checkout(target: Path) -> None:
    """Every file that git tracks or would, as it is in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes((ROOT / name).read_bytes())


def is_noticed(copy: Path, mutation: Mutation) -> bool:
    """Whether a test fails while the file is broken."""
    file, began = copy / mutation.file, time.monotonic()
    right = file.read_text(encoding="utf-8")
    if right.count(mutation.text) != 1:
        raise SystemExit(f"{mutation.file}: {mutation.text!r} stands there {right.count(mutation.text)} times")
    file.write_text(right.replace(mutation.text, mutation.broken), encoding="utf-8")
    try:
        noticed = not passes(copy, mutation.tests.split())
    finally:
        file.write_text(right, encoding="utf-8")
    print(
        f"{'noticed  ' if noticed else 'UNNOTICED'} {time.monotonic() - began:4.0f} s  {mutation.file}:"
        f" {mutation.broken or '(removed)'}",
        flush=True,
    )
    return noticed


def passes(copy: Path, tests: list[str]) -> bool:
    """Whether these tests hold; anything but passing and failing is an error of this program."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(copy), "POLARS_MAX_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not long", *tests],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
