"""The process lists of some hosts' same UTC day: the users of each row of a GPU, and each process over the day."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analytics.frames import empty
from analytics.ledger.columns import NONE, Codes, Columns, Floats, Ints, Mask, Places, Strings, run_starts
from analytics.ledger.day_rows import DayRows, in_day
from analytics.names import single_name
from fallow import schema
from fallow.clock import DAY_MS
from fallow.lake import LakeFile
from fallow.process_user import process_user
from fallow.quarantine import OnUnusable

COLUMNS = tuple(name for name in schema.PROCESS.names if name not in {"slurm_step_id", "attribution"})

KEEPER = re.compile(
    r"(?i)(?:^|[\s/])(?:(?:keep|occupy|hold|hog)[-_]?(?:the[-_]?)?gpus?|"
    r"gpus?[-_]?(?:keep(?:er|[-_]?alive)?|occup(?:y|ier)|hold(?:er)?|hog))(?:\.py|\.sh)?(?=\s|$)"
)
"""Whole names of tools whose only purpose is to defeat checks for idle GPUs, such as keep-gpu."""

SERVER = (
    r"(?i)vllm|sglang|tritonserver|text-generation|text-embeddings|lmdeploy|trtllm-serve|tensorrt_llm|llama-server|"
    r"llama\.cpp|\bollama|mii-server|torchserve|lorax|aphrodite|infinity_emb"
)
"""Pattern of commands and arguments of inference servers."""

_KEY_BITS = 44
"""Milliseconds of some centuries: a GPU's code above them makes one sortable number of GPU and time."""


@dataclass(frozen=True)
class RowOwner:
    """The users, accounts and jobs of some GPU time; names joined by `+`, None unknown."""

    user: str | None = None
    account: str | None = None
    job: str | None = None


@dataclass(frozen=True)
class Lists:
    """Process lists by GPU and time."""

    key: Ints
    """Sorts the lists."""
    time: Ints
    reach: Ints
    owner: Places
    """The users of each list, as a code into `owners`."""
    owners: tuple[RowOwner, ...]
    cpu_util_pct: Floats
    """The largest CPU use of a process of each list; NaN where none is known. 100 is one CPU."""
    keeps_alive: Mask
    """Lists whose processes are all named like tools that keep a GPU from looking idle."""
    serves: Mask
    """Lists with an inference server or a pod: others may call it by a timer."""
    users: dict[int, dict[str, int]]
    """For each list that several users share, how many processes each of them has there."""

    def of_rows(self, rows: DayRows, wanted: Mask) -> Places:
        """Return the list that applies to each wanted row, NONE for none.

        This is the last list at or before the row's time, else the first after it. It is valid for three of its
        intervals.
        """
        found = np.full(len(rows), NONE, np.intp)
        mine = np.flatnonzero(wanted)
        if not len(self.key) or not len(mine):
            return found
        gpu, time = rows.gpu[mine], rows.time[mine]
        before = last_at(self.key, sort_key(gpu, time))
        after = np.minimum(before + 1, len(self.key) - 1)
        near_before = (before >= 0) & self._near(before, gpu, time)
        if near_before.all():
            found[mine] = before
        else:
            found[mine] = np.where(near_before, before, np.where(self._near(after, gpu, time), after, NONE))
        return found

    def _near(self, at: Places, gpu: Codes, time: Ints) -> Mask:
        same = (self.key[at] >> _KEY_BITS) == gpu
        return np.asarray(same & (np.abs(time - self.time[at]) <= self.reach[at]), bool)


def sort_key(gpu: Codes, time: Ints) -> Ints:
    """Return one number that sorts by GPU, then by time."""
    return (gpu.astype(np.int64) << _KEY_BITS) + time


def last_at(keys: Ints, wanted: Ints) -> Places:
    """Return the last of some ascending keys at or before each wanted one, -1 for none."""
    if len(keys) < len(wanted) and (wanted[1:] >= wanted[:-1]).all():  # then searching the few is faster
        bounds = np.searchsorted(wanted, keys)
        return np.repeat(np.arange(-1, len(keys)), np.diff(bounds, prepend=0, append=len(wanted)))
    return np.searchsorted(keys, wanted, side="right") - 1


@dataclass(frozen=True)
class ListedProcesses:
    """The rows of the process table that name a GPU of the day, sorted by GPU, time and process."""

    gpu: Codes
    time: Ints
    interval: Ints
    integers: dict[str, Ints]
    floats: dict[str, Floats]
    texts: dict[str, Strings]
    job: Strings
    account: Strings

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.time)


def read_listed(
    files: Iterable[LakeFile],
    gpus: Sequence[tuple[str, str]],
    day_ms: int,
    on_unusable: OnUnusable | None = None,
) -> ListedProcesses:
    """Return the rows of these `process` files. Raises as `parquet.read` does."""
    return listed(Columns(files, schema.PROCESS, COLUMNS, on_unusable=on_unusable), gpus, day_ms)


def listed(columns: Columns, gpus: Sequence[tuple[str, str]], day_ms: int) -> ListedProcesses:
    """Return the rows of some columns named COLUMNS; those on other GPUs are left out."""
    codes = columns.units().among(gpus)
    time, pid = columns.ints("time"), columns.ints("pid")
    started = columns.ints("started")
    rows = np.flatnonzero((codes != NONE) & in_day(time, day_ms))
    key = sort_key(codes[rows], time[rows])
    if (np.diff(key) < 0).any():
        rows = rows[np.lexsort((started[rows], pid[rows], key))]
    texts = {
        name: columns.strings(name).take(rows)
        for name in COLUMNS
        if name != "gpu" and schema.PROCESS.column(name).type is schema.Type.STRING
    }
    job = _jobs(texts)
    texts["user"] = _users(texts, job).renamed(single_name)
    return ListedProcesses(
        gpu=codes[rows],
        time=time[rows],
        interval=np.clip(columns.ints("interval_ms", 0)[rows], 0, DAY_MS),
        integers={"pid": pid[rows], "started": started[rows]}
        | {name: columns.ints(name)[rows] for name in ("parent_pid", "mem_used_bytes", "host_mem_bytes")},
        floats={"cpu_util_pct": columns.floats("cpu_util_pct")[rows]},
        texts=texts,
        job=job,
        account=_first_known(texts["slurm_account"], texts["namespace"]).renamed(single_name),
    )


def _users(texts: dict[str, Strings], job: Strings) -> Strings:
    """Return the users; for processes without a job also containers and units, as in `process_user`."""
    parts = [texts[name] for name in ("user", "container_runtime", "container", "unit")]
    _, _, container, unit = parts
    rows = np.flatnonzero((job.codes == NONE) & ((container.codes != NONE) | (unit.codes != NONE)))
    if not len(rows):
        return texts["user"]
    distinct, which = np.unique(np.stack([part.codes[rows] for part in parts]), axis=1, return_inverse=True)
    named = [
        process_user(*(None if code == NONE else part.names[code] for part, code in zip(parts, codes, strict=True)))
        for codes in distinct.T
    ]
    names = {name: code for code, name in enumerate(dict.fromkeys([*texts["user"].names, *filter(None, named)]))}
    codes = texts["user"].codes.copy()
    codes[rows] = np.array([NONE if name is None else names[name] for name in named], np.int32)[which.ravel()]
    return Strings(codes, tuple(names))


def _jobs(texts: dict[str, Strings]) -> Strings:
    """Return slurm:ID, else pod:NAMESPACE/POD, else ray:ID."""
    return _first_known(
        _prefixed_names("slurm:", texts["slurm_job_id"]),
        _pods(texts["namespace"], texts["pod"]),
        _prefixed_names("ray:", texts["ray_job_id"]),
    )


def _prefixed_names(prefix: str, values: Strings) -> Strings:
    return Strings(values.codes, tuple(prefix + name for name in values.names))


def _pods(namespaces: Strings, pods: Strings) -> Strings:
    if not pods.names:
        return pods
    pairs = namespaces.codes.astype(np.int64) * len(pods.names) + pods.codes
    unique, codes = np.unique(np.where(pods.codes == NONE, np.int64(-(2**40)), pairs), return_inverse=True)
    names = []
    for pair in unique:
        space, pod = divmod(int(pair), len(pods.names))
        known = pair != -(2**40)
        names.append(f"pod:{namespaces.names[space] if space >= 0 else 'default'}/{pods.names[pod]}" if known else "")
    none = len(unique) and unique[0] == -(2**40)
    return Strings((codes - (1 if none else 0)).astype(np.int32), tuple(names[1:] if none else names))


def _first_known(*columns: Strings) -> Strings:
    """Return the first column that is not null, row by row."""
    names: list[str] = []
    codes = np.full(len(columns[0].codes), NONE, np.int32)
    for column in columns:
        mine = (codes == NONE) & (column.codes != NONE)
        codes[mine] = column.codes[mine] + len(names)
        names += column.names
    return Strings(codes, tuple(names))


def lists_of(rows: ListedProcesses) -> Lists:
    """Return the lists that these rows form: one per GPU and time."""
    if not len(rows):
        none = np.zeros(0, np.int64)
        return Lists(none, none, none, np.zeros(0, np.intp), (), np.zeros(0), np.zeros(0, bool), np.zeros(0, bool), {})
    key = sort_key(rows.gpu, rows.time)
    starts = run_starts(key)
    number = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(rows)))
    combination, first_row = _combinations(rows)
    owner, owners = _owners(rows, combination, first_row, starts, number)
    several = {code for code, each in enumerate(owners) if each.user and "+" in each.user}
    return Lists(
        key=key[starts],
        time=rows.time[starts],
        reach=np.maximum.reduceat(rows.interval, starts) * schema.GAP_INTERVALS,
        owner=owner,
        owners=owners,
        cpu_util_pct=np.fmax.reduceat(rows.floats["cpu_util_pct"], starts),
        keeps_alive=np.logical_and.reduceat(_named(rows, KEEPER), starts),
        serves=np.logical_or.reduceat(_named(rows, re.compile(SERVER)) | (rows.texts["pod"].codes != NONE), starts),
        users=_user_counts(rows, starts, owner, several) if several else {},
    )


def _named(rows: ListedProcesses, pattern: re.Pattern[str]) -> Mask:
    """Return the processes whose command or arguments have such a name."""
    named = np.zeros(len(rows), bool)
    for text in (rows.texts["command"], rows.texts["arguments"]):
        if text.names:
            named |= text.where_in([name for name in text.names if pattern.search(name)])
    return named


def _combinations(rows: ListedProcesses) -> tuple[Places, Places]:
    """Return each row's (user, account, job) as a code, and a row that has it."""
    packed = rows.texts["user"].codes.astype(np.int64) + 1
    for part in (rows.account, rows.job):
        packed = packed * (len(part.names) + 1) + part.codes + 1
    if (packed == packed[0]).all():
        return np.zeros(len(packed), np.intp), np.zeros(1, np.intp)
    _, first, codes = np.unique(packed, return_index=True, return_inverse=True)
    return codes, first


def _owners(
    rows: ListedProcesses,
    combination: Places,
    first_row: Places,
    starts: Places,
    number: Places,
) -> tuple[Places, tuple[RowOwner, ...]]:
    """Return, per list, the code of its owner. Lists with the same combinations have the same fingerprint."""
    order = np.lexsort((combination, number))
    sorted_number, sorted_combination = number[order], combination[order]
    again = np.concatenate(([False], (np.diff(sorted_number) == 0) & (np.diff(sorted_combination) == 0)))
    prints = np.random.default_rng(0).integers(1, 2**63, len(first_row), dtype=np.uint64)
    values = np.where(again, np.uint64(0), prints[sorted_combination])
    sums = np.add.reduceat(values, run_starts(sorted_number))
    _, first_list, codes = np.unique(sums, return_index=True, return_inverse=True)
    ends = np.append(starts[1:], len(rows))
    owners: dict[RowOwner, int] = {}
    renumbered = np.empty(len(first_list), np.intp)
    for code, at in enumerate(first_list):
        chosen = np.unique(combination[starts[at] : ends[at]])
        owner = RowOwner(
            *(_joined_names(part, first_row[chosen]) for part in (rows.texts["user"], rows.account, rows.job))
        )
        renumbered[code] = owners.setdefault(owner, len(owners))
    return renumbered[codes], tuple(owners)


def _joined_names(values: Strings, rows: Places) -> str | None:
    names = {values.names[code] for code in values.codes[rows] if code != NONE}
    return "+".join(sorted(names)) or None


def _user_counts(rows: ListedProcesses, starts: Places, owner: Places, several: set[int]) -> dict[int, dict[str, int]]:
    """Return the processes of each user in the lists of several; one that is listed twice counts once."""
    users, ends = rows.texts["user"], np.append(starts[1:], len(rows))
    listed = np.stack([users.codes, rows.integers["pid"], rows.integers["started"]])
    found = {}
    for at in np.flatnonzero(np.isin(owner, list(several))):
        codes = np.unique(listed[:, starts[at] : ends[at]], axis=1)[0]
        counts = np.bincount(codes[codes != NONE], minlength=len(users.names))
        found[int(at)] = {users.names[code]: int(counts[code]) for code in np.flatnonzero(counts)}
    return found


def process_day(rows: ListedProcesses, gpus: Sequence[tuple[str, str]], last_listed: Ints) -> pl.DataFrame:
    """Return the day's processes with the columns of `process_day`; `last_listed` is when each GPU was last empty."""
    if not len(rows):
        return empty(schema.PROCESS_DAY)
    order = np.lexsort((rows.time, rows.integers["started"], rows.integers["pid"], rows.gpu))
    starts = run_starts(rows.gpu[order], rows.integers["pid"][order], rows.integers["started"][order])
    last = order[np.append(starts[1:], len(order)) - 1]
    listed_last = last_listed.copy()
    np.maximum.at(listed_last, rows.gpu, rows.time)
    cpu = rows.floats["cpu_util_pct"][order]
    known = ~np.isnan(cpu)
    lists = np.diff(np.append(starts, len(order)))
    gpu = rows.gpu[last]
    text = {name: rows.texts[name] for name in ("kind", "user", "command", "arguments", "container_id", "pod_labels")}
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.add.reduceat(np.where(known, cpu, 0), starts) / np.add.reduceat(known.astype(np.int64), starts)
    frame = pl.DataFrame(
        {
            "time": np.minimum.reduceat(rows.time[order], starts),
            "host": [gpus[code][0] for code in gpu],
            "gpu": [gpus[code][1] for code in gpu],
            "end": rows.time[last] + rows.interval[last],
            "last_listed": listed_last[gpu],
            "pid": rows.integers["pid"][last].astype(np.int32),
            "started": rows.integers["started"][last],
            "first_parent_pid": rows.integers["parent_pid"][order[starts]].astype(np.int32),
            "parent_pid": rows.integers["parent_pid"][last].astype(np.int32),
            **{name: values.take(last).known() for name, values in text.items()},
            "account": rows.account.take(last).known(),
            "job": rows.job.take(last).known(),
            "mem_first_bytes": rows.integers["mem_used_bytes"][order[starts]],
            "mem_used_max_bytes": np.maximum.reduceat(rows.integers["mem_used_bytes"][order], starts),
            "cpu_util_mean_pct": mean,
            "cpu_util_max_pct": np.fmax.reduceat(cpu, starts),
            "host_mem_max_bytes": np.maximum.reduceat(rows.integers["host_mem_bytes"][order], starts),
            "list_count": lists.astype(np.int32),
        },
        schema_overrides=dict.fromkeys((*text, "account", "job"), pl.String),
    )
    unknown = (
        "started",
        "first_parent_pid",
        "parent_pid",
        "mem_first_bytes",
        "mem_used_max_bytes",
        "host_mem_max_bytes",
    )
    return frame.with_columns(
        *(pl.when(pl.col(name) >= 0).then(name).alias(name) for name in unknown),
        pl.col("cpu_util_mean_pct", "cpu_util_max_pct").fill_nan(None),
    )
