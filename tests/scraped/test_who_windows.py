"""However time is cut into windows, the same allocations come of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.lakes import made_lake
from tests.scraped.who_rows import STEP_S, bring, host_rows, spans

SAMPLES = 14
NAMED = st.lists(
    st.tuples(st.sampled_from([None, "-", "nlp/a", "nlp/b", "slurm:7"]), st.integers(1, 5)), min_size=SAMPLES
)


@given(NAMED, st.sets(st.integers(1, SAMPLES - 1), max_size=3))
def test_windows_are_one_however_they_are_cut(drawn: list[tuple[str | None, int]], cuts: set[int]) -> None:
    """Two GPUs of the same pods, with scrapes that fail and holders that come again, also in the middle of a window."""
    named = [who for who, times in drawn for _ in range(times)][:SAMPLES]
    with tempfile.TemporaryDirectory() as folder:
        once, often = (made_lake(Path(folder) / name) for name in ("once", "often"))
        bring(once, (STEP_S * SAMPLES, [host_rows("h1", 0, STEP_S * SAMPLES, G0=named, G1=named)]))
        left = None
        for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), SAMPLES], strict=True):
            part = host_rows("h1", STEP_S * first, STEP_S * last, G0=named[first:last], G1=named[first:last])
            left = bring(often, (STEP_S * last, [part]), before=left)
        assert spans(often) == spans(once)
