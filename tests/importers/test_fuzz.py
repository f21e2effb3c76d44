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
from tests.importers.conftest import NOON, at, query

TICKS, GPUS, STEP_S = 40, 4, 10

Values = dict[str, float]


def truth(tick: int, gpu: int) -> Values:
    """What GPU `gpu` did in tick `tick`: no two GPUs and no two ticks alike."""
    return {"util": (7 * tick + 23 * gpu) % 100, "mem": 20_000 + 10_000 * gpu + tick, "power": 120 + 100 * gpu + tick}


@dataclass(frozen=True)
class Mutant:
    """A file: header, lines, delimiter, the flags, and how many of its last characters are lost."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    delimiter: str = ","
    interval: str | None = None
    end: int = 0

    def text(self) -> str:
        text = "".join(self.delimiter.join(line) + "\n" for line in (self.names, *self.rows))
        return text[: len(text) - self.end]

    def place(self, name: str) -> int:
        """Of the first column whose name begins so; -1 where there is none."""
        return next((at for at, each in enumerate(self.names) if each.startswith(name)), -1)


def scaled(mutant: Mutant, name: str, factor: float) -> Mutant:
    """The same quantity in a unit that nothing declares."""

    def other(cell: str) -> str:
        number, space, unit = cell.strip().partition(" ")
        try:
            return f"{float(number) * factor:.17g}{space}{unit}"
        except ValueError:
            return cell

    place = mutant.place(name)
    rows = (tuple(other(cell) if at == place else cell for at, cell in enumerate(row)) for row in mutant.rows)
    return replace(mutant, rows=tuple(rows))


def without(mutant: Mutant, name: str) -> Mutant:
    place = mutant.place(name)
    lines = [tuple(cell for at, cell in enumerate(row) if at != place) for row in (mutant.names, *mutant.rows)]
    return replace(mutant, names=lines[0], rows=tuple(lines[1:]))


def shuffled(mutant: Mutant, seed: int) -> Mutant:
    rows = list(mutant.rows)
    random.Random(seed).shuffle(rows)  # noqa: S311
    return replace(mutant, rows=tuple(rows))


KINDS: dict[str, Callable[..., Mutant]] = {
    "scaled": scaled,
    "cut": lambda mutant, at, length: replace(mutant, rows=mutant.rows[:at] + mutant.rows[at + length :]),
    "doubled": lambda mutant, at, length: replace(mutant, rows=mutant.rows[: at + length] + mutant.rows[at:]),
    "shuffled": shuffled,
    "without": without,
    **{
        name: lambda mutant, value, name=name: replace(mutant, **{name: value})
        for name in ("end", "delimiter", "interval")
    },
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


EVERY = [(tick, gpu, truth(tick, gpu)) for tick in range(TICKS) for gpu in range(GPUS)]


def smi(*, indexed: bool) -> Mutant:
    names = ("timestamp", "index", "utilization.gpu [%]", "memory.used [MiB]", "memory.total [MiB]", "power.draw [W]")
    values = " {util} %", " {mem} MiB", " 81559 MiB", " {power}.00 W"
    rows = (
        (at(STEP_S * tick + 0.003 * gpu), f" {gpu}", *(each.format(**value) for each in values))
        for tick, gpu, value in EVERY
    )
    mutant = Mutant(names, tuple(rows))
    return mutant if indexed else without(mutant, "index")


def series() -> Mutant:
    rows = (
        (str(NOON + STEP_S * tick), str(gpu), str(value["util"]), str(int(value["mem"]) * 2**20), str(value["power"]))
        for tick, gpu, value in EVERY
    )
    return Mutant(("time", "gpu", "util", "mem", "power"), tuple(rows))


def summary_of(*arguments: str) -> dict:
    """What an import prints; nothing where it is refused, in one sentence."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["import", *arguments, "--host", "h", "--json"])
    assert not code or err.getvalue().count("\n") == 1, err.getvalue()
    return {} if code else json.loads(out.getvalue())


def imported(mutant: Mutant, *arguments: str) -> tuple[dict, list[tuple]]:
    """The summary and the lake's rows; nothing and no rows where the import is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path, lake = Path(folder, "in.csv"), f"{folder}/lake"
        path.write_text(mutant.text())
        interval = ["--interval", mutant.interval] if mutant.interval else []
        summary = summary_of(*(each.format(path=path) for each in arguments), *interval, "--lake", lake)
        if not summary:
            assert not Path(lake).exists()
            return {}, []
        return summary, query(
            lake,
            "select split_part(gpu, '/', 2)::int, floor((epoch_ms(time) + offset_ms) / 10000)::bigint, gpu_util_pct, "
            "mem_used_bytes, round(power_w) from lake",
        )


def check_counts(summary: dict) -> None:
    """Every row is accounted for."""
    counts = summary["rows"]
    assert counts["read"] == counts["dropped"] + counts["merged"] + counts["kept"]
    for file in summary["files"]:
        left_out = sum(each["count"] for each in file["dropped"])
        assert file["lines_read"] == file["rows_kept"] + left_out + file["not_samples"]


def check(summary: dict, rows: list[tuple], start: int) -> None:
    """Every row is accounted for, and every value is the GPU's own at that time, in the lake's unit."""
    if not summary:
        return
    check_counts(summary)
    written = next(each for each in summary["tables"] if each["table"] == "gpu")
    assert written["new"] == summary["rows"]["kept"] == len(rows)
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
    columns = [f"--column={name}={{path}}:{source}" for name, source in named.items() if source in mutant.names]
    card_flags = ["--mem-total", "80GiB"] if card else []
    check(*imported(mutant, "series", "--time", "time", "--gpu", "gpu", *columns, *card_flags), NOON)


DMON = "#Date       Time        gpu    pwr     sm     fb\n#YYYYMMDD   HH:MM:SS    Idx      W      %     MB\n" + "".join(
    f" 20261120   10:00:{tick:02}      {gpu}    14{tick}    {tick}   3953\n" for tick in range(20) for gpu in range(2)
)
XML = "".join(
    f'<?xml version="1.0" ?><nvidia_smi_log><timestamp>Fri Nov 20 10:00:{tick:02} 2026</timestamp>'
    + "".join(
        f"<gpu id='00:0{gpu}'><uuid>GPU-{gpu}</uuid><utilization><gpu_util>{tick}"
        f" %</gpu_util></utilization><processes><process_info><pid>{tick + 1}</pid><type>C</type>"
        "<process_name>python</process_name><used_memory>9"
        " MiB</used_memory></process_info></processes></gpu>"
        for gpu in range(2)
    )
    + "</nvidia_smi_log>\n"
    for tick in range(20)
)
GPUSTAT = "".join(
    json.dumps({"hostname": "h", "query_time": f"2026-11-20T10:00:{tick:02}", "gpus": [
        {"index": gpu, "uuid": f"GPU-{gpu}", "utilization.gpu": tick, "memory.used": 3953, "processes": [
            {"pid": 7, "username": "ann", "command": "python", "gpu_memory_usage": 9}
        ]} for gpu in range(2)
    ]}) + "\n" for tick in range(20)
)  # fmt: skip
PMON = (
    "#Date        Time         gpu         pid   type     sm     fb    command\n#YYYYMMDD    HH:MM:SS     Idx          "
    " #    C/G      %     MB    name\n"
    + "".join(
        f" 20261120    10:00:{tick:02}       {gpu}       {tick + 7}      C      5   3900    python\n 20261120   "
        f" 10:00:{tick:02}       2          -      -      -      -    -\n"
        for tick in range(20)
        for gpu in range(2)
    )
)
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
    st.tuples(
        st.integers(0, 2000),
        st.integers(0, 60),
        st.sampled_from(["", "\n", ", ", "\x00", "{", "]", "</gpu>", "#Time gpu\n", "x 7"]),
    ),
    min_size=1,
    max_size=4,
)


FORMATS = {
    "dmon": ("nvidia-smi", DMON),
    "pmon": ("nvidia-smi", PMON),
    "apps": ("nvidia-smi", APPS),
    "xml": ("nvidia-smi", XML),
    "gpustat": ("gpustat", GPUSTAT),
    "nvitop": ("nvitop", NVITOP),
    "nvitop-csv": ("nvitop", NVITOP_CSV),
}


@pytest.mark.parametrize("name", FORMATS)
@FUZZ
@given(damage=DAMAGE)
def test_damaged_files_of_other_formats(name: str, damage: list[tuple[int, int, str]]) -> None:
    kind, text = FORMATS[name]
    for start, length, instead in damage:
        text = text[:start] + instead + text[start + length :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "in")
        path.write_text(text)
        if summary := summary_of(kind, str(path), "--lake", f"{folder}/lake", "--yes"):
            check_counts(summary)


def test_the_unmutated_files_are_published() -> None:
    for indexed in (True, False):
        summary, rows = imported(smi(indexed=indexed), "nvidia-smi", "{path}")
        assert len(rows) == TICKS * GPUS
        check(summary, rows, 1_795_168_800)
