"""What is thin in the data is said aloud: one remark per kind of flaw, none where there is none, never a flood."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from analytics.inventory import load_inventory
from analytics.quality.remarks import data_quality
from fallow import schema
from tests.ledger.recording import opened
from tests.ledger.rows import GB, allocation, device, fill, ms, processes, samples, write
from tests.report.conftest import BUSY, DAY, FREE, HOUR

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.report.conftest import Outcome

    Remarks = Callable[..., dict[str, list[str]]]

AGO = -90 * DAY  # well in the past, so that nothing is in the future


@pytest.fixture
def remarks() -> Remarks:
    """Sentences per kind of remark, as a report over the window has them."""

    def read(lake: Lake, until: str | None = None) -> dict[str, list[str]]:
        inputs, ledger = opened(lake, until=until)
        found: dict[str, list[str]] = {}
        for each in data_quality(inputs, ledger, load_inventory(lake)):
            found.setdefault(each.kind, []).append(each.sentence)
        return found

    return read


def hour(gpu: str, first_s: float = 0, last_s: float = HOUR, **values: object) -> list[dict[str, object]]:
    return samples(gpu, AGO + first_s, AGO + last_s, **BUSY | values)


def free(*gpus: str) -> list[dict[str, object]]:
    return [row for gpu in gpus for row in hour(gpu, **FREE)]


def listed(*gpus: str, **values: object) -> list[dict[str, object]]:
    return [device(gpu, time=ms(AGO)) | values for gpu in gpus]


def host(lake: Lake, name: str, first_s: float = 0, last_s: float = 6 * HOUR) -> Lake:
    return fill(lake, hour(f"GPU-{name}", first_s, last_s), devices=listed(f"GPU-{name}"), host=name)


def allocated(
    gpu: str | None, first_s: float, last_s: float | None, user: str = "ann", job: str = "j1", **values: object
) -> dict[str, object]:
    return allocation(gpu, AGO + first_s, None if last_s is None else AGO + last_s, user, job) | values


def counted(last_s: float, count: int, job: str = "7") -> dict[str, object]:
    return allocated(None, 0, last_s, job=job, scheduler="slurm", host_gpu_count=count)


def lists(*gpus: str, **values: object) -> list[dict[str, object]]:
    return [
        row for gpu in gpus for row in processes(gpu, *(AGO + at for at in range(0, HOUR, 300)), every_s=300, **values)
    ]


def swapped(lake: Lake) -> Lake:
    slots = [device(gpu, time=ms(AGO), pci_bus_id="00000000:01:00.0") for gpu in ("a", "c")]
    return fill(lake, hour("a") + hour("c", HOUR, 2 * HOUR), devices=slots)


def of_count(lake: Lake) -> Lake:
    """A number that is the whole host, and one that processes show."""
    fill(lake, free("a", "b"), allocations=[counted(HOUR, 2)], devices=listed("a", "b"))
    rows, shown = free("c") + hour("d"), lists("d", slurm_job_id="8")
    return fill(lake, rows, shown, [counted(HOUR, 1, "8")], devices=listed("c", "d"), host="h2")


@pytest.mark.parametrize("made", [lambda lake: host(lake, "h1"), of_count], ids=["whole", "counted"])
def test_nothing_to_remark(lake: Lake, remarks: Remarks, made: Callable[[Lake], Lake]) -> None:
    assert remarks(made(lake)) == {}


def test_a_card_that_was_swapped_is_no_second_machine(lake: Lake, remarks: Remarks) -> None:
    assert "shared_host_name" not in remarks(swapped(lake))


def test_nobody_looked(lake: Lake, remarks: Remarks) -> None:
    for number in range(7):
        host(lake, f"h{number}", 0, HOUR)
        host(lake, f"h{number}", 2 * HOUR + 600 * number, 6 * HOUR)
    sentences = remarks(lake)["unobserved"]
    assert len(sentences) == 6
    assert sentences[0] == "h6: 1.8 GPU-hours not observed (30.6 % of its time)"
    assert sentences[-1] == "2 more hosts: 1.8 GPU-hours not observed"


def test_silent_hosts_are_named_up_to_five_the_longest_silent_first(lake: Lake, remarks: Remarks) -> None:
    for number in range(8):
        host(lake, f"h{number}", 0, (number + 1) * HOUR)
    sentences = remarks(lake)["silent"]
    assert [sentence[:2] for sentence in sentences[:5]] == ["h0", "h1", "h2", "h3", "h4"]
    assert sentences[5] == "1 more host silent at the end of the window; later time is not in any sum"
    assert remarks(lake, "2026-08-22T01:00Z").get("silent") is None


def test_how_the_figures_were_come_by(lake: Lake, remarks: Remarks) -> None:
    rows = hour("a", **FREE | {"process_count": None, "mem_used_bytes": 9 * GB})
    rows += hour("b", **FREE | {"gpu_util_coverage_ratio": None}) + hour("c", **FREE | {"gpu_util_pct": None})
    sampled = "1.0 GPU-hours rest on point samples, which watched less than half of their time: the uncertain part"
    assert remarks(fill(lake, rows, devices=[device("a")])) == {
        "unmeasured": ["1 GPU never reported utilization: its use is unknown, not zero"],
        "memory_user": ["1.0 GPU-hours count as in use because memory was allocated; no process list names the user"],
        "point_samples": [f"{sampled} is stated beside the figures"],
        "no_inventory": ["2 GPUs without an inventory entry: model, memory and pool are unknown"],
    }


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (
            "util_out_of_range",
            {"gpu_util_pct": 300.0},
            "outside its range: it counts as unknown (such as a: gpu_util_pct 300)",
        ),
        ("util_out_of_range", {"gpu_util_coverage_ratio": 1.5}, "(such as a: gpu_util_coverage_ratio 1.5)"),
        ("negative_value", {"mem_used_bytes": -5}, "negative memory, power or energy: it counts as unknown"),
        ("negative_value", {"power_w": -5.0}, "(such as a: power_w -5)"),
        ("negative_value", {"energy_mj": -5}, "energy_mj -5"),
        ("not_a_number", {"power_w": float("nan")}, "no number (NaN or infinite): it counts as unknown"),
        ("not_a_number", {"power_w": float("inf")}, "no number (NaN or infinite): it counts as unknown"),
        ("too_large", {"mem_used_bytes": 2**60}, "a value that no card can have: it counts as unknown"),
        ("no_interval", {"interval_ms": 0}, "they cover no time"),
        ("no_interval", {"interval_ms": -10}, "they cover no time"),
    ],
)
def test_values_that_cannot_be_are_counted(
    lake: Lake, remarks: Remarks, kind: str, values: dict[str, object], words: str
) -> None:
    rows = hour("a") + hour("b")
    fill(lake, [row | values if 2 <= number < 5 else row for number, row in enumerate(rows)], devices=listed("a", "b"))
    found = remarks(lake)
    found.pop("unobserved", None)  # what a refused value leaves
    found.pop("point_samples", None)  # without its coverage a row watched nothing that is known
    ((said, (sentence,)),) = found.items()
    assert said == kind
    assert sentence.startswith("3 rows of 1 GPU with ")
    assert words in sentence


def twice(lake: Lake) -> Lake:
    return fill(lake, hour("a") + [row | {"gpu_util_pct": 3.0} for row in hour("a")[:4]], devices=listed("a"))


def fallen(lake: Lake) -> Lake:
    rows = [row | {"energy_mj": 1000 * (number % 6)} for number, row in enumerate(hour("a"))]
    return fill(lake, rows, devices=listed("a"))


def one_name(lake: Lake) -> Lake:
    slots = [
        device(gpu, time=ms(AGO), pci_bus_id=f"00000000:{slot}:00.0") for gpu, slot in (("a", 1), ("b", 2), ("c", 1))
    ]
    return fill(lake, hour("a", 0, 6 * HOUR) + hour("b", 0, 6 * HOUR) + hour("c", HOUR, 5 * HOUR), devices=slots)


def on_two_hosts(lake: Lake, since_s: float, until_s: float) -> Lake:
    fill(lake, hour("a", 0, until_s), devices=listed("a"), host="h2")
    return fill(lake, hour("a", since_s, since_s + until_s), host="h1")


def overlapping(lake: Lake) -> Lake:
    allocations = [
        allocated("a", 0, 2400),
        allocated("a", 600, 1800, "eve", "j2"),
        allocated("a", 2400, HOUR, "eve", "j3"),
    ]
    return fill(lake, hour("a"), allocations=allocations, devices=listed("a"))


def backward(lake: Lake) -> Lake:
    allocations = [allocated("a", 0, HOUR), allocated("a", 600, 0, "eve", "j2")]
    return fill(lake, hour("a"), allocations=allocations, devices=listed("a"))


def of_a_ghost(lake: Lake) -> Lake:
    allocations = [allocated("a", 0, HOUR), allocated("ghost", -HOUR, None, "eve", "j2")]
    return fill(lake, hour("a"), allocations=allocations, devices=listed("a"))


def by_count(lake: Lake) -> Lake:
    allocations = [counted(HOUR, 2), counted(HOUR / 2, 1, "8")]
    return fill(lake, free("a", "b", "c"), allocations=allocations, devices=listed("a", "b", "c"))


def unallocated(lake: Lake) -> Lake:
    allocations = [allocated("a", 0, 1800), allocated("b", -600, HOUR + 600, job="j2")]
    fill(lake, hour("a") + hour("b") + free("c"), lists("a", "b"), allocations, devices=listed("a", "b", "c"))
    return fill(lake, hour("d"), devices=listed("d"), host="a-workstation-without-a-scheduler")


ONE_REMARK: dict[str, tuple[Callable[[Lake], Lake], str]] = {
    "gone": (
        lambda lake: fill(lake, hour("a") + hour("b", 0, 6 * HOUR), devices=listed("a", "b")),
        "1 GPU on 1 host stopped reporting before the host did; later time is not in any sum",
    ),
    "duplicate_rows": (twice, "4 rows of 1 GPU with the same moment as another row of their GPU: one of them counts"),
    "counter_fell": (fallen, "1 row of 1 GPU with a counter that went back"),
    "shared_host_name": (
        one_name,
        (
            "h1: two machines seem to write under this name, because 1 slot held two GPUs at once (a and c at"
            " 00000000:1:00.0, 4.0 hours)"
        ),
    ),
    "gpu_moved": (
        lambda lake: on_two_hosts(lake, HOUR, HOUR),
        "1 GPU moved between hosts: a (h2 and h1); each host has the time that it observed",
    ),
    "gpu_on_two_hosts": (
        lambda lake: on_two_hosts(lake, HOUR, 3 * HOUR),
        (
            "1 GPU reported by several hosts at once: a (h2 and h1); that time counts once, for the host that observed"
            " it last"
        ),
    ),
    "overlapping_allocations": (
        overlapping,
        (
            "1 GPU named by several allocations at once, for 0.3 GPU-hours (such as a: allocation:j1 and"
            " allocation:j2): the time counts once, and every user with an allocation counts as its user"
        ),
    ),
    "backward_allocations": (backward, "1 allocation with an end before the start (such as j2): left out"),
    "allocations_without_telemetry": (
        of_a_ghost,
        "1 allocation with 1.0 GPU-hours on GPUs without any recorded data (such as allocation:j2 on ghost): in no sum",
    ),
    "allocations_by_count": (
        by_count,
        (
            "2 allocations with 2.5 GPU-hours known only by a number of GPUs (such as 7 on h1): the GPUs themselves are"
            " unknown, and the time counts as free where no process shows"
        ),
    ),
    "telemetry_without_allocations": (
        unallocated,
        (
            "0.5 GPU-hours with a workload on 1 GPU that no allocation covers, on hosts that have allocations (such as"
            " a on h1, 0.5 hours by ann): they still count as allocated time"
        ),
    ),
    "simulated": (
        lambda lake: fill(lake, hour("a") + hour("b"), devices=[*listed("a", source="simulated"), *listed("b")]),
        "1 of 2 GPUs simulated: their figures are no measurements",
    ),
}


def test_values_that_contradict_each_other_are_named_by_source_and_hours(lake: Lake, remarks: Remarks) -> None:
    said = {"process_count": 0, "gpu_util_pct": 100.0, "mem_used_bytes": 4 * 2**20, "power_w": 55.0}
    rows = hour("a", **said, util_source="scraped") + hour("b", **said, util_source="samples") + hour("c")
    found = remarks(fill(lake, rows, devices=listed("a", "b", "c")))
    what = "with utilization without the memory or the process of a kernel: this time is not observed"
    values = "gpu_util_pct 100, mem_used_bytes 4194304, power_w 55"
    assert found["util_without_context"] == [
        f"1.0 GPU-hours of 1 GPU (from the agent) {what} (such as b: {values})",
        f"1.0 GPU-hours of 1 GPU (scraped) {what} (such as a: {values})",
    ]
    assert found["unobserved"] == ["h1: 2.0 GPU-hours not observed (66.7 % of its time)"]


@pytest.mark.parametrize("kind", ONE_REMARK)
def test_each_flaw_is_one_remark_and_no_other(lake: Lake, remarks: Remarks, kind: str) -> None:
    made, words = ONE_REMARK[kind]
    made(lake)
    until = "2026-08-22T05:30Z" if kind == "shared_host_name" else None
    ((found, (sentence,)),) = remarks(lake, until).items()
    assert found == kind
    assert sentence.startswith(words)


def test_a_clock_that_was_set_back(lake: Lake, remarks: Remarks) -> None:
    rows = hour("a") + [row | {"offset_ms": 40_000} for row in hour("a", 600, 1800)]
    fill(lake, rows, devices=listed("a"))
    said = [
        {"time": ms(AGO + 600), "kind": "clock_stepped", "detail": "the wall clock was put back by about 1200 s"},
        {"time": ms(AGO + 700), "kind": "agent_start", "detail": "hello"},
        {"time": ms(AGO - 2 * DAY), "kind": "clock_stepped", "detail": "before the window"},
    ]
    write(lake, schema.EVENT, said)
    found = remarks(lake)
    assert set(found) == {"clock_stepped", "overlapping_rows"}
    jumped = "the clock of h1 jumped, 1 time in all, last at 2026-08-22 00:10 UTC: repeated time counts once"
    assert found["clock_stepped"] == [f"{jumped}, skipped time is unknown"]
    (sentence,) = found["overlapping_rows"]
    begun = (
        "4 rows of 1 GPU on h1 begin before the row before them has ended: each moment counts once, by the later row"
    )
    assert sentence.startswith(begun)


def test_models_that_nobody_has_a_price_for(lake: Lake, remarks: Remarks) -> None:
    devices = [*listed("a", "b", model="NVIDIA Z900"), *listed("c", model=None)]
    fill(lake, hour("a") + hour("b") + hour("c"), devices=devices)
    unpriced = "2 GPUs without a price: NVIDIA Z900 (train); every cost that includes them is left out"
    assert remarks(lake) == {
        "no_model": ["1 GPU without a model name: its cost is unknown, and so is whether a smaller card would do"],
        "no_price": [f"{unpriced}; add their price to the file in money.prices"],
    }


def test_a_remark_counts_and_gives_an_example(lake: Lake, report: Callable[..., Outcome]) -> None:
    fill(lake, hour("a", power_w=-1.0), devices=listed("a"))
    (remark,) = json.loads(report(lake, "--format", "json").out)["tables"]["data_quality"]["rows"]
    assert (remark["kind"], remark["count"], remark["example"]) == ("negative_value", 12, "a: power_w -1")
