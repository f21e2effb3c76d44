"""Mutated files: no traceback, no value in the wrong unit or on the wrong GPU, and every row accounted for."""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fallow.cli import main
from tests.importers.conftest import at, query

TICKS, GPUS, STEP_S = 40, 4, 10
NOON = 1_795_176_000
Values = dict[str, float]


def truth(tick: int, gpu: int) -> Values:
    """What GPU `gpu` did in tick `tick`: no two GPUs and no two ticks alike."""
    return {"util": (7 * tick + 23 * gpu) % 100, "mem": 20_000 + 10_000 * gpu + tick, "power": 120 + 100 * gpu + tick}


@dataclass(frozen=True)
class Mutant:
    """A file: header, lines, delimiter, the flags, and the factor that each quantity is off by."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    delimiter: str = ","
    interval: str | None = None
    end: int = 0

    def text(self) -> str:
        lines = [self.names, *self.rows]
        text = "".join(self.delimiter.join(line) + "\n" for line in lines)
        return text[: len(text) - self.end]


def column(mutant: Mutant, name: str) -> int:
    return next((at for at, each in enumerate(mutant.names) if each.startswith(name)), -1)


def scaled(mutant: Mutant, name: str, factor: float) -> Mutant:
    """The same quantity in a unit that nothing declares."""
    place = column(mutant, name)
    if place < 0:
        return mutant

    def other(cell: str) -> str:
        number, _, unit = cell.strip().partition(" ")
        try:
            return f"{float(number) * factor:.17g}" + (f" {unit}" if unit else "")
        except ValueError:
            return cell

    rows = tuple(
        (*row[:place], other(row[place]), *row[place + 1 :]) if place < len(row) else row for row in mutant.rows
    )
    return replace(mutant, rows=rows)


def without(mutant: Mutant, name: str) -> Mutant:
    place = column(mutant, name)
    if place < 0:
        return mutant
    return replace(
        mutant,
        names=(*mutant.names[:place], *mutant.names[place + 1 :]),
        rows=tuple((*row[:place], *row[place + 1 :]) for row in mutant.rows),
    )


def shuffled(mutant: Mutant, seed: int) -> Mutant:
    rows = list(mutant.rows)
    random.Random(seed).shuffle(rows)  # noqa: S311
    return replace(mutant, rows=tuple(rows))


def cut(mutant: Mutant, start: int, length: int) -> Mutant:
    return replace(mutant, rows=mutant.rows[:start] + mutant.rows[start + length :])


def doubled(mutant: Mutant, start: int, length: int) -> Mutant:
    return replace(mutant, rows=mutant.rows[: start + length] + mutant.rows[start:])


KINDS: dict[str, Callable[..., Mutant]] = {
    "scaled": scaled,
    "cut": cut,
    "doubled": doubled,
    "shuffled": shuffled,
    "without": without,
    "end": lambda mutant, end: replace(mutant, end=end),
    "delimiter": lambda mutant, delimiter: replace(mutant, delimiter=delimiter),
    "interval": lambda mutant, interval: replace(mutant, interval=interval),
}
Mutation = tuple[object, ...]
"""A kind and its arguments."""

PLACES, LENGTHS = st.integers(0, TICKS * GPUS - 1), st.integers(1, 30)
MUTATIONS = st.one_of(
    # what a quantity is multiplied with where its unit is another than the file says: a ratio, mW, kW, GiB, ...
    st.sampled_from([("scaled", "util", 0.01), ("scaled", "power", 1000), ("scaled", "power", 1 / 1000)]),
    st.sampled_from([("scaled", "mem", factor) for factor in (1024, 2**20, 1 / 1024, 2**-20, 2**-30)]),
    st.tuples(st.sampled_from(["cut", "doubled"]), PLACES, LENGTHS),
    st.tuples(st.just("shuffled"), st.integers(0, 99)),
    st.tuples(st.just("end"), st.integers(1, 400)),
    st.sampled_from([("without", name) for name in ("power", "util", "t", "index", "memory.total")]),
    st.sampled_from([("delimiter", each) for each in (";", "\t", "|", " ")]),
    st.sampled_from([("interval", each) for each in ("1s", "10s", "60s", "1h", "100ms")]),
)
MUTANTS = st.lists(MUTATIONS, min_size=1, max_size=3)


def mutate(base: Mutant, mutations: list[Mutation]) -> Mutant:
    for kind, *arguments in mutations:
        base = KINDS[str(kind)](base, *arguments)
    return base


def smi(*, indexed: bool) -> Mutant:
    rows = []
    for tick in range(TICKS):
        for gpu in range(GPUS):
            value = truth(tick, gpu)
            rows.append((
                at(STEP_S * tick + 0.003 * gpu), *([f" {gpu}"] if indexed else []), f" {value['util']} %", f" {value['mem']} MiB",
                " 81559 MiB", f" {value['power']}.00 W",
            ))  # fmt: skip
    index = ("index",) if indexed else ()
    names = ("timestamp", *index, "utilization.gpu [%]", "memory.used [MiB]", "memory.total [MiB]", "power.draw [W]")
    return Mutant(names, tuple(rows))


def series() -> Mutant:
    rows = []
    for tick in range(TICKS):
        for gpu in range(GPUS):
            value = truth(tick, gpu)
            memory = int(value["mem"]) * 2**20
            rows.append((str(NOON + STEP_S * tick), str(gpu), str(value["util"]), str(memory), str(value["power"])))
    return Mutant(("time", "gpu", "util", "mem", "power"), tuple(rows))


def imported(mutant: Mutant, *arguments: str) -> tuple[dict, list[tuple]]:
    """The summary and the lake's rows; nothing and no rows where the import is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path, lake = Path(folder, "in.csv"), f"{folder}/lake"
        path.write_text(mutant.text())
        interval = ["--interval", mutant.interval] if mutant.interval else []
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([
                "import", *(each.format(path=path) for each in arguments), *interval, "--host", "h", "--lake", lake, "--json"
            ])  # fmt: skip
        if code:
            assert err.getvalue().count("\n") == 1, err.getvalue()
            assert not Path(lake).exists()
            return {}, []
        rows = query(
            lake,
            "select split_part(gpu, '/', 2)::int, floor((epoch_ms(time) + offset_ms) / 10000)::bigint, gpu_util_pct, "
            "mem_used_bytes, round(power_w) from lake",
        )
        return json.loads(out.getvalue()), rows


def check(summary: dict, rows: list[tuple], start: int, *, hours_known: bool = True) -> None:
    """Every row is accounted for, and every value is the GPU's own at that time, in the lake's unit."""
    if not summary:
        return
    counts = summary["rows"]
    assert counts["read"] == counts["dropped"] + counts["merged"] + counts["kept"]
    for file in summary["files"]:
        left_out = sum(each["count"] for each in file["dropped"])
        assert file["lines_read"] == file["rows_kept"] + left_out + file["not_samples"]
    written = next(each for each in summary["tables"] if each["table"] == "gpu")
    assert written["new"] == counts["kept"] == len(rows)
    if hours_known:
        assert summary["overview"]["gpu_hours"] <= 1.6 * GPUS * TICKS * STEP_S / 3600
    for gpu, slot, util, memory, power in rows:
        value = truth(slot - start // STEP_S, gpu)
        assert util in (None, value["util"])
        assert memory in (None, value["mem"] * 2**20)
        assert power in (None, value["power"])


FUZZ = settings(suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("indexed", [True, False])
@FUZZ
@given(mutations=MUTANTS)
def test_mutated_logs_of_nvidia_smi(indexed: bool, mutations: list[Mutation]) -> None:  # noqa: FBT001
    kinds = {kind for kind, *_ in mutations}
    # a lost line and another one twice make a whole tick: only a name could tell
    assume(indexed or not {"cut", "doubled"} <= kinds)
    start = 1_795_168_800  # 2026-11-20T10:00:00Z
    check(*imported(mutate(smi(indexed=indexed), mutations), "nvidia-smi", "{path}"), start)


@FUZZ
@given(mutations=MUTANTS, card=st.booleans())
def test_mutated_series(mutations: list[Mutation], card: bool) -> None:  # noqa: FBT001
    mutant = mutate(series(), mutations)
    named = {"gpu_util_pct": "util", "mem_used_bytes": "mem", "power_w": "power"}
    flags = [
        flag
        for name, source in named.items()
        if source in mutant.names
        for flag in ("--column", f"{name}={{path}}:{source}")
    ]
    card_flags = ["--mem-total", "80GiB"] if card else []
    check(*imported(mutant, "series", "--time", "time", "--gpu", "gpu", *flags, *card_flags), NOON)


DMON = "#Date       Time        gpu    pwr     sm     fb\n#YYYYMMDD   HH:MM:SS    Idx      W      %     MB\n" + "".join(
    f" 20261120   10:00:{tick:02}      {gpu}    14{tick}    {tick}   3953\n" for tick in range(20) for gpu in range(2)
)
XML = "".join(
    f'<?xml version="1.0" ?><nvidia_smi_log><timestamp>Fri Nov 20 10:00:{tick:02} 2026</timestamp>' + "".join(
        f"<gpu id='00:0{gpu}'><uuid>GPU-{gpu}</uuid><utilization><gpu_util>{tick} %</gpu_util></utilization><processes><process_info><pid>{tick + 1}</pid>"
        "<type>C</type><process_name>python</process_name><used_memory>9 MiB</used_memory></process_info></processes></gpu>" for gpu in range(2)
    ) + "</nvidia_smi_log>\n" for tick in range(20)
)  # fmt: skip
GPUSTAT = "".join(
    json.dumps({"hostname": "h", "query_time": f"2026-11-20T10:00:{tick:02}", "gpus": [
        {"index": gpu, "uuid": f"GPU-{gpu}", "utilization.gpu": tick, "memory.used": 3953, "processes": [
            {"pid": 7, "username": "ann", "command": "python", "gpu_memory_usage": 9}
        ]} for gpu in range(2)
    ]}) + "\n" for tick in range(20)
)  # fmt: skip
PMON = "#Date        Time         gpu         pid   type     sm     fb    command\n#YYYYMMDD    HH:MM:SS     Idx           #    C/G      %     MB    name\n" + "".join(
    f" 20261120    10:00:{tick:02}       {gpu}       {tick + 7}      C      5   3900    python\n 20261120    10:00:{tick:02}       2          -      -      -      -    -\n"
    for tick in range(20) for gpu in range(2)
)  # fmt: skip
APPS = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n" + "".join(
    f"{at(tick)}, GPU-{gpu}, {tick + 7}, /usr/bin/python3, 3900 MiB\n" for tick in range(20) for gpu in range(2)
)
NVITOP = "".join(
    json.dumps({
        "t/timestamp": NOON + tick, "t/duration (s)": 1, "t/pid:7/host/running_time (min)": tick, **{
            key: value for gpu in range(2) for key, value in {
                f"t/gpu:{gpu}/gpu_utilization (%)/mean": tick, f"t/gpu:{gpu}/memory_used (MiB)/last": 3953,
                f"t/pid:7/gpu:{gpu}/gpu_memory (MiB)/last": 9,
            }.items()
        },
    }) + "\n" for tick in range(20)
)  # fmt: skip
NVITOP_CSV = (
    "t/timestamp,t/duration (s),t/gpu:0/gpu_utilization (%)/last,t/pid:7/gpu:0/gpu_memory (MiB)/last\n"
    + "".join(f"{NOON + tick},{tick},{tick},9\n" for tick in range(1, 20))
)
DAMAGE = st.lists(
    st.tuples(st.integers(0, 2000), st.integers(0, 60), st.sampled_from(["", "\n", ", ", "\x00", "{", "]", "</gpu>", "#Time gpu\n", "x 7"])),
    min_size=1, max_size=4,
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("nvidia-smi", DMON),
        ("nvidia-smi", PMON),
        ("nvidia-smi", APPS),
        ("nvidia-smi", XML),
        ("gpustat", GPUSTAT),
        ("nvitop", NVITOP),
        ("nvitop", NVITOP_CSV),
    ],
)
@FUZZ
@given(damage=DAMAGE)
def test_damaged_files_of_other_formats(kind: str, text: str, damage: list[tuple[int, int, str]]) -> None:
    for start, length, instead in damage:
        text = text[:start] + instead + text[start + length :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "in")
        path.write_text(text)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["import", kind, str(path), "--host", "h", "--lake", f"{folder}/lake", "--json", "--yes"])
        if code:
            assert err.getvalue().count("\n") == 1
            return
        summary = json.loads(out.getvalue())
        counts = summary["rows"]
        assert counts["read"] == counts["dropped"] + counts["merged"] + counts["kept"]
        for file in summary["files"]:
            left_out = sum(each["count"] for each in file["dropped"])
            assert file["lines_read"] == file["rows_kept"] + left_out + file["not_samples"]


def test_the_unmutated_files_are_published() -> None:
    for indexed in (True, False):
        summary, rows = imported(smi(indexed=indexed), "nvidia-smi", "{path}")
        assert len(rows) == TICKS * GPUS
        check(summary, rows, 1_795_168_800)
