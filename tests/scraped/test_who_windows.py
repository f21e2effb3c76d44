"""However time is cut into windows, and windows into parts, the same allocations come of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from analytics.allocations.model import KnownHosts
from analytics.allocations.publish import publish_allocations
from analytics.scraped.who.allocations import OpenAllocations, allocations_of
from analytics.scraped.who.label_runs import Given
from tests.lakes import made_lake
from tests.ledger.rows import ms
from tests.scraped.who_rows import STEP_S, bring, host_rows, spans
from tests.scraped.who_rows import given as given_of

SAMPLES = 14
NAMED = st.lists(
    st.tuples(st.sampled_from([None, "-", "nlp/a", "nlp/b", "slurm:7"]), st.integers(1, 5)), min_size=SAMPLES
)


@given(NAMED, st.sets(st.integers(1, SAMPLES - 1), max_size=3))
def test_windows_are_one_however_they_are_cut(drawn: list[tuple[str | None, int]], cuts: set[int]) -> None:
    """Two GPUs of the same pods, with scrapes that fail and holders that come again, also in the middle of a window."""
    named = [who for who, times in drawn for _ in range(times)][:SAMPLES]
    with tempfile.TemporaryDirectory() as folder:
        once, often, parted = (made_lake(Path(folder) / name) for name in ("once", "often", "parted"))
        bring(once, (STEP_S * SAMPLES, [host_rows("h1", 0, STEP_S * SAMPLES, G0=named, G1=named)]))
        left, parts = None, []
        for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), SAMPLES], strict=True):
            part = host_rows("h1", STEP_S * first, STEP_S * last, G0=named[first:last], G1=named[first:last])
            left = bring(often, (STEP_S * last, [part]), before=left)
            parts.append(given_of(part))
        found = allocations_of(
            Given.joined(parts), None, OpenAllocations.none(), as_of_ms=ms(STEP_S * SAMPLES), hosts=KnownHosts()
        )
        publish_allocations(parted, found.read, replace=False)
        assert spans(often) == spans(once) == spans(parted)
