"""Reads scontrol's view of a moment: running jobs' GPUs, jobs' reasons, and hosts whose GPUs Slurm may not allocate.

`scontrol show job --details`, `show node` and `show reservation` differ in how their blocks begin, so one file may hold
all of them. The output of `sinfo` is a file of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from analytics.allocations.slurm_output import (
    JobGpus,
    expand,
    gpu_count,
    gres_positions,
    job_gpus,
    json_jobs,
    json_number,
)
from analytics.allocations.times import read_moments
from analytics.frames import typed
from analytics.importers.source import InputLimits, open_source
from fallow.errors import InputError
from fallow.schema import WITHHELD

SNAPSHOT = "scontrol show job --details"
_KINDS = ("JobId=", "NodeName=", "ReservationName=")
_NONE = re.compile(r"No (jobs|nodes|reservations) in the system\s*")

_REASON = re.compile(r"^ +JobState=\S+ Reason=(?!None )(\S+) ", re.MULTILINE)
_ONE_LINE = re.compile(r"(JobId|NodeName|ReservationName)=.* (JobState|State|Nodes)=")
_NODE = re.compile(r"^NodeName=(\S+) ")
_GRES = re.compile(r"^ +Gres=(?:\S+,)?gpu\b", re.MULTILINE)
_STATE = re.compile(r"^ +State=(\S+) ", re.MULTILINE)
_SINCE = re.compile(r"^ +Reason=(.*) \[[^\[\]\s]*@(\S+)\]\s*$", re.MULTILINE)
_STOPPED = {"DOWN", "DRAIN", "DRAINED", "DRAINING", "DRNG", "FAIL", "FAILING", "FAILG", "INVAL"}
"""Flags of a node's state, long and short, with which no job starts on it (sinfo(1), NODE STATE CODES)."""

_RESERVATION = re.compile(r"^ReservationName=(\S+) StartTime=(\S+) EndTime=(\S+)")
_RESERVED_NODES = re.compile(r"^ +Nodes=(\S+) NodeCnt=", re.MULTILINE)
_RESERVED_TRES = re.compile(r"^ +TRES=(\S+)", re.MULTILINE)
_SOME_CORES = re.compile(r"\bCoreIDs=")


@dataclass(frozen=True)
class WithheldNode:
    """A node whose GPUs Slurm may not allocate."""

    node: str
    kind: str
    since: str
    """As text; so is `until`."""
    until: str | None = None
    name: str | None = None
    gpus: int | None = None
    """None for all of them."""
    reason: str | None = None


@dataclass(frozen=True)
class SlurmState:
    """State at a moment: jobs on their GPUs, the reason of each job by its id, and nodes whose GPUs are withheld."""

    gpus: Sequence[JobGpus] = ()
    reasons: Mapping[str, str] | None = None
    withheld: Sequence[WithheldNode] = ()

    @property
    def times(self) -> list[str | None]:
        """Return the texts of all times of the state."""
        withheld = [text for node in self.withheld for text in (node.since, node.until)]
        return [*(job.start for job in self.gpus), *withheld]

    def with_ids(self, named: Callable[[str], str]) -> SlurmState:
        """Return the state with the lake's names of its jobs."""
        gpus = [replace(each, job_id=named(each.job_id)) for each in self.gpus]
        return replace(self, gpus=gpus, reasons={named(job): why for job, why in (self.reasons or {}).items()})


def state_of(text: str) -> SlurmState:
    """Return what scontrol or sinfo printed. Raises ValueError for a malformed list of hosts or GPUs."""
    if "NODELIST" in text.partition("\n")[0]:
        return SlurmState(withheld=tuple(_stopped_nodes(text)))
    if _ONE_LINE.match(text):
        raise ValueError("each of its entries is one line: save it without --oneliner")
    blocks = re.split(r"\n(?=(?:JobId|NodeName|ReservationName)=)", text)
    withheld = [each for block in blocks for each in (*_drained_node(block), *_reservation_nodes(block))]
    named = ((block.partition(" ")[0].removeprefix("JobId="), _REASON.search(block)) for block in blocks)
    reasons = {job: found[1].replace("_", " ") for job, found in named if found is not None}
    return SlurmState(tuple(job_gpus(text)), reasons, withheld)


def _drained_node(block: str) -> Iterator[WithheldNode]:
    """Return a node with GPUs on which no job starts; nothing where the start of that state is unknown."""
    node, state, since = _NODE.match(block), _STATE.search(block), _SINCE.search(block)
    if node is None or state is None or since is None or not _GRES.search(block):
        return
    if _STOPPED & set(re.findall(r"[A-Z]+", state[1])):
        yield WithheldNode(node[1], "drained", since[2], reason=since[1])


SINFO = ("sinfo", "--Node", "--all", "--format=%N|%T|%G|%H|%E")
_SINFO_LINE = "sinfo --Node --all --format='%N|%T|%G|%H|%E'"


def _stopped_nodes(text: str) -> Iterator[WithheldNode]:
    """Yield the nodes of sinfo on which no job starts, from the time that its reason has; nothing for others.

    Any `--format` with `|` between its fields will do, and the columns of `sinfo --list-reasons`, which lists only such
    nodes. Raises ValueError where the header lacks the time, or a list of nodes is malformed.
    """
    lines = text.splitlines()
    heads = [(found[0].strip(), found.start()) for found in re.finditer(r"[^|\s]+", lines[0])]
    names, starts = zip(*heads, strict=True)
    if "TIMESTAMP" not in names:
        raise ValueError(f"without TIMESTAMP it is not known since when nodes are down; use {_SINFO_LINE}")
    for line in dict.fromkeys(filter(str.strip, lines[1:])):
        cut = [line[start:end] for start, end in zip(starts, (*starts[1:], None), strict=True)]
        row = dict(zip(names, map(str.strip, line.split("|") if "|" in lines[0] else cut), strict=False))
        state = row.get("STATE", "DOWN").upper()
        if row.get("GRES", "gpu").count("gpu") and _STOPPED & set(re.findall(r"[A-Z]+", state)):
            for node in expand(row["NODELIST"]):
                yield WithheldNode(node, "drained", row["TIMESTAMP"], reason=row.get("REASON"))


def _reservation_nodes(block: str) -> Iterator[WithheldNode]:
    """Return the nodes of a reservation; a reservation of some cores and no GPU withholds none."""
    found, nodes, tres = _RESERVATION.match(block), _RESERVED_NODES.search(block), _RESERVED_TRES.search(block)
    if found is None or nodes is None or nodes[1] == "(null)":
        return
    name, since, until = found.groups()
    hosts, gpus = expand(nodes[1]), gpu_count(tres[1]) if tres is not None else None
    if gpus is None and _SOME_CORES.search(block):
        return
    for host in hosts:
        yield WithheldNode(host, "reservation", since, until, name, None if gpus is None else gpus // len(hosts))


def read_snapshot(path: str, limits: InputLimits) -> SlurmState:
    """Return the state in one file, text or the JSON of jobs, plain or gzipped. Raises InputError."""
    source = open_source(path, limits)
    if source.text is None or source.cut_off:
        raise InputError(f"{path} is {'cut off' if source.cut_off else 'no text'}", f"save it again with: {SNAPSHOT}")
    if source.text.lstrip().startswith(b"{"):
        program = ("scontrol", "scontrol show job --json")
        if b'"jobs"' not in source.text:
            raise InputError(
                f"{path} is JSON without jobs",
                "save nodes, reservations and states as text: scontrol show node, scontrol show reservation,"
                f" {_SINFO_LINE}",
            )
        jobs = list(json_jobs(path, source.text, limits, program, lambda job: (_json_gpus(job), _json_reason(job))))
        reasons = {job: reason for _, waits in jobs for job, reason in waits}
        return SlurmState([each for gpus, _ in jobs for each in gpus], reasons)
    text = _NONE.sub("", source.text.decode(errors="replace").lstrip())
    if text.strip() and "NODELIST" not in text.partition("\n")[0] and not text.startswith(_KINDS):
        raise InputError(
            f"{path} is not scontrol's output for jobs, nodes or reservations",
            f"save it while jobs run, with: {SNAPSHOT}; or save the states of nodes with: {_SINFO_LINE}",
        )
    try:
        return state_of(text)
    except ValueError as error:
        raise InputError(
            f"{path} is not scontrol's output for jobs, nodes or reservations: {error}",
            f"save it again with: {SNAPSHOT}",
        ) from error


def _json_gpus(job: dict[str, Any]) -> list[JobGpus]:
    """Return the job's GPUs, one entry per node, in the order of its list."""
    details = job.get("gres_detail") or []
    nodes = expand(job["nodes"]) if details and job.get("nodes") else ()
    start = json_number(job.get("start_time")) or ""
    if nodes and len(nodes) != len(details):
        raise ValueError(f"job {job['job_id']} has {len(nodes)} nodes and {len(details)} entries of gres_detail")
    return [
        JobGpus(str(job["job_id"]), node, positions, start)
        for node, gres in zip(nodes, details, strict=False)
        if (positions := gres_positions(gres))
    ]


def _json_reason(job: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the id and the reason of a job; nothing without a reason."""
    reason = job.get("state_reason")
    return [(str(job["job_id"]), str(reason))] if reason and reason != "None" else []


def with_reasons(rows: pl.DataFrame, shown: Iterable[SlurmState], *, is_open: pl.Expr) -> pl.DataFrame:
    """Return the rows (`allocation_id`, `reason`), open ones with the shown reason: accounting keeps only some."""
    reasons = {job: reason for state in shown for job, reason in (state.reasons or {}).items()}
    shown_reason = pl.col("allocation_id").replace_strict(reasons, default=None, return_dtype=pl.String)
    return rows.with_columns(reason=pl.when(is_open).then(pl.coalesce(shown_reason, "reason")).otherwise("reason"))


def withheld_rows(
    shown: Iterable[SlurmState], host_of: Callable[[str], str], zone: str, as_of_ms: int | None
) -> pl.DataFrame:
    """Return rows of `withheld`; none where the state's time is unknown. `host_of` gives the lake's name for a node."""
    nodes = [vars(each) | {"node": host_of(each.node)} for state in shown for each in state.withheld]
    texts = dict.fromkeys(("node", "kind", "since", "until", "name", "reason"), pl.String())
    frame = pl.DataFrame(nodes, schema=texts | {"gpus": pl.Int32()})
    time, end = (read_moments(frame[name], zone).first for name in ("since", "until"))
    rows = frame.with_columns(
        time=time, end=end, as_of=pl.lit(as_of_ms, pl.Int64), scheduler=pl.lit("slurm"), gpu_count="gpus"
    )
    once = rows.drop_nulls(["time", "as_of"]).unique(["node", "kind", "time", "name"], maintain_order=True)
    return typed(once, WITHHELD)
