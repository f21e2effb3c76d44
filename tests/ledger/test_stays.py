"""Stays: stretches of one GPU put together while holder and job stay the same."""

from __future__ import annotations

import polars as pl

from analytics.ledger.usage import stays


def ledger(*rows: tuple[object, ...]) -> pl.DataFrame:
    names = {"gpu": pl.String, "host": pl.String, "time": pl.Int64, "end": pl.Int64, "state": pl.String,
             "holder": pl.String, "job": pl.String, "gpu_share": pl.Float64}  # fmt: skip
    return pl.DataFrame(list(rows), schema=names, orient="row")


def test_stretches_of_one_holder_and_job_are_one_stay() -> None:
    found = stays(
        ledger(
            ("a", "h1", 0, 10, "held", "ada", "slurm:1", 1.0),
            ("a", "h1", 10, 30, "active", "ada", "slurm:1", 1.0),
            ("a", "h1", 30, 40, "unknown", None, None, 1.0),
            ("a", "h1", 40, 45, "active", "ada", "slurm:1", 1.0),
            ("a", "h1", 45, 50, "free", None, None, 1.0),
            ("a", "h1", 50, 60, "active", "ada", "slurm:2", 1.0),
            ("a", "h1", 60, 70, "reserved", "bea", None, 1.0),
        )
    )
    told = found.select("holder", "job", "time", "end", "active", "held", "reserved", "low").rows()
    assert told == [
        ("bea", None, 60, 70, 0.0, 0.0, 10.0, 0.0),
        ("ada", "slurm:2", 50, 60, 10.0, 0.0, 0.0, 0.0),
        ("ada", "slurm:1", 0, 45, 25.0, 10.0, 0.0, 0.0),
    ]


def test_another_gpu_is_another_stay_and_an_instance_counts_as_its_part() -> None:
    found = stays(
        ledger(("a", "h1", 0, 70, "low", "ada", None, 1.0), ("b", "h1", 70, 140, "low", "ada", None, 1 / 7))
    )  # fmt: skip
    assert found.select("gpu", "low").rows() == [("b", 10.0), ("a", 70.0)]


def test_time_of_nobody_is_no_stay() -> None:
    assert stays(
        ledger(("a", "h1", 0, 70, "free", None, None, 1.0), ("a", "h1", 70, 90, "unavailable", None, None, 1.0))
    ).is_empty()
