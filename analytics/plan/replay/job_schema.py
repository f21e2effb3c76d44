"""The columns of jobs that are replayed: what each asked for, when, and what it really did."""

from __future__ import annotations

import polars as pl

REPLAY_JOB_SCHEMA: dict[str, pl.DataType] = {
    "number": pl.UInt32(),
    "job": pl.String(),
    "user": pl.String(),
    "team": pl.String(),
    "pool": pl.String(),
    "model": pl.String(),
    "partition": pl.String(),
    "kind": pl.String(),
    "gpus": pl.Int32(),
    "gpus_used": pl.Int32(),
    "hosts": pl.Int32(),
    "asked": pl.Int64(),
    "ran_ms": pl.Int64(),
    "limit_ms": pl.Int64(),
    "used_ms": pl.Int64(),
    "idle_spells": pl.List(pl.Struct({"begin": pl.Int64, "end": pl.Int64})),
    "mem_bytes": pl.Int64(),
    "sm_pct": pl.Float64(),
    "priority": pl.Int64(),
    "is_deferrable": pl.Boolean(),
    "started": pl.Int64(),
    "ended": pl.Int64(),
    "before_window": pl.Boolean(),
}
"""One row per job run; times are milliseconds since the epoch. Null is unknown, except where it says otherwise.

number       of the job, each once
kind         of work: notebook, serving, test or batch
gpus         it held, at least 1
gpus_used    of these that ever worked; the others are there because blocks are whole
hosts        over how many it was spread, at least 1; the GPUs of a job on one host have to fit on one
asked        when it could have begun: its submission, not its start; null: it is taken to come when it started
ran_ms       how long it held its GPUs
limit_ms     its time limit
used_ms      from its start to the last work on any of its GPUs; what is left of `ran_ms` is an idle tail
idle_spells  when none of its GPUs worked, from its start, in order
mem_bytes    the most that it needs on any GPU
sm_pct       the most that it makes use of one GPU, in percent of its SMs
priority     the scheduler's own number: more is more urgent
is_deferrable  its owner would not mind that it runs at night
started, ended  what was observed
before_window  it ran when the window began: it holds its GPUs from `started` on, and is not judged
"""
