"""Allocations from the labels of scraped GPUs: where runs begin, end and go on, and how windows join."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.allocations.model import KnownHosts
from analytics.allocations.publish import publish_allocations
from analytics.scraped.who.allocations import OpenAllocations, WindowAllocations, allocations_of
from analytics.scraped.who.label_runs import Given
from tests.allocations.conftest import stored
from tests.lakes import made_lake
from tests.ledger.rows import T0, ms
from tests.scraped.scraped_series import UTIL, dcgm, rows_of, uuid
from tests.scraped.who_rows import STEP_S, bring, host_rows, spans
from tests.scraped.who_rows import given as given_of

if TYPE_CHECKING:
    from analytics.importers.model import Imported
    from fallow.lake import Lake


def one(*hosts: Imported, until_s: float) -> WindowAllocations:
    return allocations_of(given_of(*hosts), None, OpenAllocations.none(), as_of_ms=ms(until_s), hosts=KnownHosts())


def test_a_run_lasts_from_its_first_sample_to_the_one_that_does_not_name_it(lake: Lake) -> None:
    hosts = [
        host_rows("h1", 0, 150, G0=[None, "nlp/a", "nlp/a", None, "nlp/b"], G1=[None, "nlp/a", "nlp/a", "nlp/a", None])
    ]
    bring(lake, (150, hosts))
    assert spans(lake) == [("nlp/a", "G0", 30, 90), ("nlp/a", "G1", 30, 120), ("nlp/b", "G0", 120, None)]
    assert stored(lake)[0] == {
        "allocation_id": "nlp/a", "scheduler": "kubernetes", "account": "nlp", "name": "a", "gpu": "G0", "gpu_count": 2,
        "time": ms(30), "end": ms(90), "host": "h1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (["nlp/a", "-", "-", "-", "-", "-", "nlp/a", None], [(0, 210)]),  # nobody looked: nobody saw it leave
        (["nlp/a", "-", "-", "-", "-", "-", None, None], [(0, 30)]),  # one interval at most
        (["nlp/a", None, None, None, "nlp/a", None, None, None], [(0, 30), (120, 150)]),
        (["nlp/a", None, "nlp/a", None, None, None, None, None], [(0, 90)]),  # away for less than a minute
    ],
)
def test_a_gap_ends_a_run_only_where_somebody_looked(
    named: list[str | None], expected: list[tuple[float, float]]
) -> None:
    rows = one(host_rows("h1", 0, 240, G0=named), until_s=240).read.rows.sort("time")
    assert [((t - T0) / 1000, (e - T0) / 1000) for t, e in rows.select("time", "end").iter_rows()] == expected


@pytest.mark.parametrize("cut", [90, 120, 300])
def test_a_pod_that_comes_back_soon_on_another_gpu_did_not_have_it_before(cut: int, lake: Lake) -> None:
    """A StatefulSet's."""
    named = {"G0": [*["nlp/a-0"] * 3, *[None] * 7], "G1": [*[None] * 4, *["nlp/a-0"] * 6]}
    left = None
    for since, until in ((0, cut), (cut, 300))[: 1 + (cut < 300)]:
        part = {gpu: each[since // 30 : until // 30] for gpu, each in named.items()}
        left = bring(lake, (until, [host_rows("h1", since, until, **part)]), before=left)
    assert spans(lake) == [("nlp/a-0", "G0", 0, 90), ("nlp/a-0", "G1", 120, None)]


def test_a_run_ends_with_a_scrape_that_comes_early_also_where_the_next_window_has_it(lake: Lake) -> None:
    first, second = host_rows("h1", 0, 60, G0=["nlp/a"]), host_rows("h1", 59, 119, G0=[None])
    bring(lake, (59, [first]), (119, [second]))
    assert spans(lake) == [("nlp/a", "G0", 0, 59)]


@pytest.mark.parametrize("restarted", [False, True])
def test_windows_join_and_an_open_run_is_written_once(lake: Lake, *, restarted: bool) -> None:
    left = bring(lake, (60, [host_rows("h1", 0, 60, G0=["nlp/a"])]))
    goes_on = given_of(host_rows("h1", 60, 120, G0=["nlp/a"]))
    found = allocations_of(goes_on, None, left, as_of_ms=ms(120), hosts=KnownHosts())
    assert found.read.rows.is_empty()
    ends = host_rows("h1", 120, 240, G0=["nlp/a", "nlp/a", None, None])
    bring(lake, (240, [ends]), before=None if restarted else found.open)
    assert spans(lake) == [("nlp/a", "G0", 0, 180)]


def test_windows_that_overlap_tell_an_open_run_once_and_a_closed_one_alike(lake: Lake) -> None:
    named = [None, "nlp/a", "nlp/a", None, None, "nlp/b", "nlp/b", "nlp/b", "nlp/b", "nlp/b"]
    left, written = OpenAllocations.none(), []
    for last in (6, 7, 8, 10):
        part = host_rows("h1", 30 * (last - 6), 30 * last, G0=named[last - 6 : last])
        found = allocations_of(given_of(part), None, left, as_of_ms=ms(30 * last), hosts=KnownHosts())
        written.append(found.read.rows["allocation_id"].to_list())
        left = bring(lake, (30 * last, [part]), before=left)
    assert written == [["nlp/a", "nlp/b"], ["nlp/a"], ["nlp/a"], []]
    assert spans(lake) == [("nlp/a", "G0", 30, 90), ("nlp/b", "G0", 150, None)]


@pytest.mark.parametrize(("restarted", "end"), [(False, 60), (True, 90)])
def test_what_left_between_two_windows_ended_there(lake: Lake, *, restarted: bool, end: int) -> None:
    """After a restart nobody knows its last sample: it ends with the first that does not name it."""
    left = bring(lake, (60, [host_rows("h1", 0, 60, G0=["nlp/a"], G1=["slurm:7"])]))
    later = host_rows("h1", 90, 150, G0=["nlp/b"], G1=["slurm:8"])
    bring(lake, (150, [later]), before=None if restarted else left)
    ended, open_ones = (
        [("7", "G1", 0, end), ("nlp/a", "G0", 0, end)],
        [("8", "G1", 90, None), ("nlp/b", "G0", 90, None)],
    )
    assert sorted(spans(lake)) == sorted(ended + open_ones)


def test_a_gpu_that_nobody_sees_for_a_day_has_given_its_pod_back(lake: Lake) -> None:
    day = 86_400
    left = bring(lake, (60, [host_rows("h1", 0, 60, G0=["nlp/a"])]))
    left = bring(lake, (day, [host_rows("h2", day - 60, day, G9=[None])]), before=left)
    assert spans(lake) == [("nlp/a", "G0", 0, None)]
    bring(lake, (day + 120, [host_rows("h2", day, day + 60, G9=[None])]), before=left)
    assert spans(lake) == [("nlp/a", "G0", 0, 60)]


def test_of_series_as_exporters_give_them(lake: Lake) -> None:
    """dcgm-exporter's pods and jobs, Princeton's jobs by value; where the target was down, series end, users stay."""
    target = {"uuid": uuid(2), "minor_number": "2", "instance": "gn02:9445", "job": "princeton"}
    held = {"duty_cycle": [0.0] * 10, "jobId": [8.0] * 6 + [0.0] * 4, "jobUid": [1001.0] * 6 + [0.0] * 4}
    scraped = rows_of(
        dcgm(UTIL, [0.0, 0.0, 0.0, None], pod="a", namespace="nlp"),
        dcgm(UTIL, [0.0, 0.0, None], pod="a", namespace="nlp", start_s=600),
        dcgm(UTIL, [0.0] * 2, start_s=660),
        dcgm(UTIL, [0.0] * 10, gpu=1, hpc_job="7"),
        *(
            ({"__name__": f"nvidia_gpu_{name}", **target}, [(ms(30 * at), value) for at, value in enumerate(values)])
            for name, values in held.items()
        ),
    )
    bring(lake, (900, list(scraped.values())))
    assert spans(lake) == [("7", uuid(1), 0, None), ("8", uuid(2), 0, 180), ("nlp/a", uuid(0), 0, 660)]
    assert [row.get("user") for row in stored(lake)] == [None, "1001", None]


def test_who_has_no_id_is_said_and_is_no_row() -> None:
    found = one(host_rows("h1", 0, 90, G0=["slurm:0@ann"], G1=["/a"], G2=["slurm:7@ann"]), until_s=90).read
    assert found.rows["allocation_id"].to_list() == ["7"]
    assert found.notes == (
        (
            "of 2 GPUs labels name a pod without its namespace, or a user without pod or job: that is no allocation,"
            " and is not kept"
        ),
    )


SAMPLES = 14
NAMED = st.lists(
    st.tuples(st.sampled_from([None, "-", "nlp/a", "nlp/b", "slurm:7"]), st.integers(1, 5)), min_size=SAMPLES
)


@given(NAMED, st.sets(st.integers(1, SAMPLES - 1), max_size=3))
def test_windows_are_one_however_they_are_cut(drawn: list[tuple[str | None, int]], cuts: set[int]) -> None:
    """Two GPUs of the same pods, with scrapes that fail and users that come again, also in the middle of a window."""
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
