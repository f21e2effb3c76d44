"""Input files made to hurt: bombs that unpack to more than any memory, and good files with random damage.

`bombs` and `mutated_inputs` try each in a process of its own with bounded memory, and tell what became of it.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conftest import REPOSITORY, clean_environment

MOST_BYTES = 4 << 30
"""Address space of a process: beyond it an allocation fails instead of taking the machine's memory."""

_CHILD = """
import json, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
from fallow.cli import COMMANDS, load, main
runs = json.loads(sys.stdin.read())
for name in {run[0] for run in runs}:
    load(next(each for each in COMMANDS if each.name == name))
for run in runs:
    begun = time.process_time()
    code = main(run)
    # not ru_maxrss, which begins with that of the process that started this one
    [peak] = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")]
    print(json.dumps(["tried", code, time.process_time() - begun, peak]), file=sys.stderr, flush=True)
"""


@dataclass(frozen=True)
class Tried:
    """How a command took a file: exit code (None: it did not end), last words, seconds of CPU, peak memory in bytes."""

    name: str
    code: int | None
    said: str
    seconds: float
    peak_bytes: int

    @property
    def is_held(self) -> bool:
        """Whether it ended by itself, with a sentence or with what it could read, and without a traceback."""
        return self.code in (0, 1, 2) and "Traceback" not in self.said


def attempt(runs: dict[str, list[str]], timeout_s: float = 120) -> list[Tried]:
    """Runs commands one after another in one process of bounded memory."""
    command = [sys.executable, "-c", _CHILD, str(MOST_BYTES)]
    given = {"input": json.dumps(list(runs.values())), "text": True, "errors": "replace", "timeout": timeout_s}
    given["env"] = clean_environment({"POLARS_MAX_THREADS": "1", "PYTHONPATH": str(REPOSITORY)})
    try:
        done = subprocess.run(command, capture_output=True, check=False, **given)  # type: ignore[call-overload]
        said = done.stderr
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode(errors="replace")
    return _told(list(runs), said)


def _told(names: list[str], said: str) -> list[Tried]:
    """What was said before each mark is of one run; a process that died leaves the others without one."""
    found, words = [], []
    for line in said.splitlines():
        if line.startswith('["tried"'):
            _, code, seconds, peak = json.loads(line)
            found.append(Tried(names[len(found)], code, "\n".join(words), seconds, peak))
            words = []
        else:
            words.append(line)
    return [*found, *(Tried(name, None, "\n".join(words), 0.0, 0) for name in names[len(found) :])]


def bombs(names: Iterable[str] = ()) -> Iterator[Tried]:
    """Every bomb, or those of these names, each in a process of its own."""
    for name in tuple(names) or tuple(BOMBS):
        make, arguments = BOMBS[name]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "in")
            make(path)
            filled = [each.format(path=path, folder=folder) for each in arguments]
            yield from attempt({name: filled})


def packed(head: bytes, unit: bytes, repeat: int, times: int, tail: bytes = b"") -> Callable[[Path], object]:
    """A gzip file of `head`, `times` members of `repeat` units each (compressed once), and `tail`."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.write(gzip.compress(head))
            member = gzip.compress(unit * repeat, 6)
            for _ in range(times):
                file.write(member)
            file.write(gzip.compress(tail))

    return make


def nulls(path: Path) -> None:
    """200 million nulls in some kilobytes."""
    count = 10_000_000
    columns = {
        "time": pa.nulls(count, pa.int64()),
        "gpu": pa.nulls(count, pa.string()),
        "value": pa.nulls(count, pa.float64()),
    }
    with pq.ParquetWriter(path, pa.table(columns).schema) as writer:
        for _ in range(20):
            writer.write_table(pa.table(columns))


def one_long_text(path: Path) -> None:
    """A million rows that share one text of a megabyte."""
    names = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000_000, pa.int32()), pa.array(["x" * 2**20]))
    table = pa.table(
        {"time": pa.array(range(1_000_000), pa.int64()), "gpu": names, "value": pa.array([1.0] * 1_000_000)}
    )
    pq.write_table(table, path, compression="zstd")


SMI = b"timestamp, index, utilization.gpu [%]\n"
SACCT = b"JobIDRaw|User|Start|End|NodeList|AllocTRES|JobName\n"
JOB = b"1|ann|2026-11-20T10:00:00|2026-11-20T11:00:00|%s|gres/gpu=8|train\n"
MB = 2**20
_LAKE = ("--lake", "{folder}/lake")
_NVIDIA_SMI = ("import", "nvidia-smi", "{path}", "--host", "h", *_LAKE, "--yes")
_GPUSTAT = ("import", "gpustat", *_NVIDIA_SMI[2:])
_NVITOP = ("import", "nvitop", *_NVIDIA_SMI[2:])
_SERIES = (
    "import",
    "series",
    "--time",
    "time",
    "--gpu",
    "gpu",
    "--column",
    "gpu_util_pct={path}:value",
    "--interval",
    "10s",
)
_SERIES = (*_SERIES, *_LAKE, "--yes")
_SLURM, _KUBERNETES, _CSV = (
    ("allocations", "import", each, "{path}", *_LAKE) for each in ("slurm", "kubernetes", "csv")
)
_LAUGHS = b"".join(
    b'<!ENTITY l%d "%s">' % (depth, b"&l%d;" % (depth - 1) * 10 if depth else b"ha") for depth in range(10)
)

BOMBS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "3 GB of zeros": (packed(b"", b"\0", 64 * MB, 48), _NVIDIA_SMI),
    "3 GB of lines": (packed(SMI, b"2026/11/20 10:00:00.000, 0, 5 %\n", MB // 4, 400), _NVIDIA_SMI),
    "250 MB of empty lines": (packed(SMI, b"\n", 50 * MB, 5), _NVIDIA_SMI),
    "250 MB of NUL and letters": (packed(SMI, b"\0a", 25 * MB, 5), _NVIDIA_SMI),
    "one line of 240 MB": (packed(SMI, b"a, ", 16 * MB, 5), _NVIDIA_SMI),
    "a line of letters of four bytes": (packed(SMI, "\U0001f600".encode(), 12 * MB, 5), _NVIDIA_SMI),
    "XML of entities": (packed(b"<?xml version='1.0'?><!DOCTYPE x [" + _LAUGHS + b"]><nvidia_smi_log>",
                               b"<a>&l9;</a>", 1, 1, b"</nvidia_smi_log>"), _NVIDIA_SMI),
    "XML without an end": (packed(b"<nvidia_smi_log>", b"<a/>", 12 * MB, 5), _NVIDIA_SMI),
    "XML a million deep": (packed(b"<nvidia_smi_log>", b"<a>", MB, 1, b"</a>" * MB + b"</nvidia_smi_log>"),
                           _NVIDIA_SMI),
    "JSON millions deep": (packed(b"", b'{"a":', 10 * MB, 5), _GPUSTAT),
    "JSON of brackets": (packed(b"", b"[", 50 * MB, 5), _GPUSTAT),
    "JSON of broken documents": (packed(b"", b'\n{"a":', 8 * MB, 5), _GPUSTAT),
    "a document of millions of GPUs": (packed(b'{"gpus":[', b"{},", 16 * MB, 5, b"{}]}"), _GPUSTAT),
    "one text of 250 MB": (packed(b'{"a":"', b"x", 50 * MB, 5, b'"}'), _NVITOP),
    "records of many keys": (packed(b"", b'{"t/timestamp":1795176000,"t/duration (s)":1,'
                                    + b",".join(b'"t/%d":1' % each for each in range(400_000)) + b"}\n", 1, 45),
                             _NVITOP),
    "CSV of millions of columns": (packed(b"", b"a,", 40 * MB, 3), _NVITOP),
    "200 million nulls": (nulls, _SERIES),
    "a million times one text": (one_long_text, _SERIES),
    "3 GB of a series": (packed(b"time,gpu,value\n", b"1795176000,0,5\n", 4 * MB, 48), _SERIES),
    "lists of 65,536 hosts": (packed(SACCT, b"".join(JOB % (b"n%d[00001-65536]" % each) for each in range(2000)), 1, 1),
                              _SLURM),
    "a host of a million brackets": (packed(SACCT, JOB % (b"n" + b"[1]" * MB), 1, 1), _SLURM),
    "a count of a million digits": (packed(SACCT, JOB % (b"n[1-" + b"9" * MB + b"]"), 1, 1), _SLURM),
    "3 GB of jobs": (packed(SACCT, JOB % b"n1", MB // 2, 80), _SLURM),
    "a job of sacct --json of 250 MB": (packed(b'{"jobs":[{"name":"', b"x", 50 * MB, 5, b'"}]}'), _SLURM),
    "sacct --json millions deep": (packed(b'{"jobs":[', b'{"a":', 10 * MB, 5), _SLURM),
    "a pod of 250 MB": (packed(b'{"items":[{"kind":"', b"x", 50 * MB, 5, b'"}]}'), _KUBERNETES),
    "Kubernetes millions deep": (packed(b'{"items":[', b'{"a":', 10 * MB, 5), _KUBERNETES),
    "a Kubernetes list of millions": (packed(b'{"items":[', b"{},", 16 * MB, 5, b'{}],"kind":"List"}'), _KUBERNETES),
    "a quote that never ends": (packed(b'start,host,gpu_count\n"', b"x,\n", 16 * MB, 5), _CSV),
    "3 GB of allocations": (packed(b"start,host,gpu_count,user\n", b"2026-11-20T10:00:00Z,h,1,ann\n", 2 * MB, 50),
                            _CSV),
}  # fmt: skip
"""Files of some megabytes at most, and the command that is given each."""

_DAMAGE = (
    b"||\n|, |\0|{|]|}|</gpu>|\"|'|\xff\xfe|\x1b[2J|-|1e999|NaN|&|<!ENTITY a 'b'>|[1-99999]|\r|\x1f\x8b|\xef\xbb\xbf"
).split(b"|")
_DAMAGE += [b"9" * 400, "\u202e".encode(), b"|"]


def good_files() -> dict[str, tuple[bytes, tuple[str, ...]]]:
    """A small good file of every kind, and the command that reads it."""
    from tests.allocations.cluster_objects import kubectl, pod, workload
    from tests.importers import test_fuzz as files

    tables = {
        "nvidia-smi": (files.smi(indexed=True).text(), _NVIDIA_SMI),
        "dmon": (files.DMON, _NVIDIA_SMI),
        "pmon": (files.PMON, _NVIDIA_SMI),
        "compute-apps": (files.APPS, _NVIDIA_SMI),
        "xml": (files.XML, _NVIDIA_SMI),
        "gpustat": (files.GPUSTAT, _GPUSTAT),
        "nvitop": (files.NVITOP, _NVITOP),
        "nvitop csv": (files.NVITOP_CSV, _NVITOP),
        "series": (files.series().text(), tuple(each.replace(":value", ":util") for each in _SERIES)),
        "allocations": ("start,end,host,gpu_count,user,allocation_id\n" + "".join(
            f"2026-11-20T10:{each:02}:00Z,2026-11-20T11:00:00Z,h{each},2,ann,c{each}\n" for each in range(40)), _CSV),
        "sacct": ((SACCT + b"".join(JOB % (b"n[%d-%d]" % (each, each + 1)) for each in range(40))).decode(), _SLURM),
        "sacct json": (json.dumps({"jobs": [_json_job(each) for each in range(20)], "errors": []}, indent=1), _SLURM),
        "kubernetes": (kubectl(*(each for n in range(10) for each in (pod(f"p{n}", n, 30 * n), workload(f"w{n}", n)))),
                       _KUBERNETES),
    }  # fmt: skip
    found = {name: (text.encode(), arguments) for name, (text, arguments) in tables.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "in.parquet")
        times = [1_795_176_000 + 10 * each for each in range(50)]
        pq.write_table(pa.table({"time": times, "gpu": ["0"] * 50, "value": [5.0] * 50}), path)
        found["parquet"] = (path.read_bytes(), _SERIES)
    return found | {"gzip": (gzip.compress(found["nvidia-smi"][0]), _NVIDIA_SMI)}


def _json_job(each: int) -> dict[str, object]:
    same = {"name": "train", "user": "ann", "account": "nlp", "partition": "gpu", "qos": "normal", "nodes": f"n{each}"}
    time = {"submission": 1_795_176_000, "start": 1_795_176_060 + each, "end": 1_795_179_660, "elapsed": 3600}
    tres = {"allocated": [{"type": "gres", "name": "gpu", "count": 8}], "requested": []}
    return same | {"job_id": each, "state": {"current": ["COMPLETED"]}, "time": time, "tres": tres}


def mutated_inputs(count: int, seed: int = 1, at_once: int = 100) -> Iterator[Tried]:
    """So many damaged files of every kind in turn; `at_once` of them share a process."""
    rng = random.Random(seed)  # noqa: S311
    goods = list(good_files().items())
    for first in range(0, count, at_once):
        with tempfile.TemporaryDirectory() as folder:
            runs = {}
            for number in range(first, min(count, first + at_once)):
                name, (good, arguments) = goods[number % len(goods)]
                path = Path(folder, str(number))
                path.write_bytes(damaged(good, rng))
                runs[f"{name} {number}"] = [each.format(path=path, folder=f"{folder}/{number}-") for each in arguments]
            yield from attempt(runs, timeout_s=600)


def damaged(good: bytes, rng: random.Random) -> bytes:
    """The file with some segments replaced, moved, doubled or lost, and now and then its end."""
    text = good
    for _ in range(rng.randint(1, 5)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice((0, 1, 4, 30, 300)))
        instead = rng.choice((*_DAMAGE, text[start:end] * 2, bytes(rng.randrange(256) for _ in range(8))))
        text = text[:start] + instead + text[end:]
    return text[: rng.randrange(len(text) + 1)] if rng.random() < 0.1 else text
