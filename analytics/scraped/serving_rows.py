"""Rows of `serving` from scraped series of inference servers: one per server, model, GPU and two adjacent scrapes.

Which metric fills which column is data in `fallow.serving_engines`, the same as for the agent's own scrapes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import polars as pl

from analytics.mapping.model import Exporter, MappedMetric
from analytics.scraped.samples import Labels, Samples, first_label
from analytics.scraped.series_labels import address_host, replicas_of, target_of
from fallow.clock import HOUR_MS, SECOND_MS
from fallow.schema import SERVING
from fallow.serving_engines import ENGINES, FIRST_TOKEN, TOTAL, Engine, EngineMetric, engine_of, wanted_names

NAMESPACE = ("namespace", "kubernetes_namespace", "pod_namespace", "k8s.namespace.name", "k8s_namespace_name")
POD = ("pod", "pod_name", "kubernetes_pod_name", "k8s.pod.name", "k8s_pod_name")
NODE = ("node", "kubernetes_node", "nodename", "k8s.node.name", "k8s_node_name", "host.name")
"""Labels of a scraped target, by usual relabelling and by OpenTelemetry's conventions for resources."""

LONGEST_MS = HOUR_MS
"""Counters tell of the time between two scrapes; after a longer one it is unknown when in it the requests came."""

SERVER_NAMES = frozenset(name + end for name in wanted_names() for end in ("", TOTAL))
"""The metrics to ask a metrics server for."""

_SERVER = ("server", "model")
_COLUMN = (*_SERVER, "column", "is_divisor")
_SERIES = (*_COLUMN, "key")
_LEVELS = tuple(dict.fromkeys(each.column for engine in ENGINES for each in engine.levels))
_COUNTED = tuple(dict.fromkeys(each.column for engine in ENGINES for each in engine.counters))


@cache
def server_exporters() -> tuple[Exporter, ...]:
    """Return the engines as exporters, for the recognition of their series."""
    return tuple(_exporter(engine) for engine in ENGINES)


def _exporter(engine: Engine) -> Exporter:
    metrics = tuple(
        MappedMetric(
            part.name + end,
            SERVING.name,
            quantity.column,
            "reading" if quantity in engine.levels else "counter",
            only=((part.label, "|".join(part.values)),) if part.label else (),
        )
        for quantity in engine.quantities
        for source in quantity.sources
        for part in source.parts
        for end in ("", TOTAL)
    )
    return Exporter(
        name=engine.prefix,
        title=f"inference server {engine.name} ({engine.prefix}*)",
        source_url="docs/inference-servers.md",
        readings="Levels are true of the scrape; tokens and requests are counted between two scrapes.",
        signed_by=tuple(metric.metric for metric in metrics if metric.metric.startswith(engine.prefix)),
        metrics=metrics,
        host=NODE,
        ignored=rf"{engine.prefix}.*",
    )


@dataclass(frozen=True, order=True)
class InferenceServer:
    """A scraped inference server; texts are empty where no label states them."""

    endpoint: str
    namespace: str
    pod: str
    node: str
    engine: str

    @property
    def allocation_id(self) -> str | None:
        return f"{self.namespace}/{self.pod}" if self.namespace and self.pod else None

    @property
    def place(self) -> str:
        """Return the node, else the host of the address."""
        return self.node or address_host(self.endpoint.rpartition("/")[2])


@dataclass(frozen=True)
class ServedModels:
    """`rows` has columns of `serving`, and `server`, an index into `servers`.

    `time` is in milliseconds; hosts and GPUs are not yet known.
    """

    servers: tuple[InferenceServer, ...]
    rows: pl.DataFrame


def served_models(samples: Samples, since_ms: int, until_ms: int) -> ServedModels:
    """Return a row per server, model and scrape from `since_ms` up to `until_ms`, on the time since the last scrape.

    A server that several jobs or replicas of a metrics server scrape counts once, by the one with the most samples.
    A counter below its value before has restarted at 0, and a series that appears between two scrapes began at 0.
    """
    servers, meanings = _meanings(samples.labels)
    frame = samples.frame.filter(pl.col("value").is_not_null()).with_columns(pl.col("value").fill_nan(None))
    read = frame.join(meanings, on="series")
    chosen = read.group_by("server", "source").len().sort("len", "source", descending=[True, False])
    read = read.join(chosen.unique("server", keep="first", maintain_order=True), on=["server", "source"], how="semi")
    read = read.filter(pl.col("rank") == pl.col("rank").min().over("server", "model", "column"))
    # copies of one count, and a counter under its name with and without _total
    once = read.group_by(*_SERIES, "mean", "is_level", "is_part", "time_ms").agg(
        value=pl.when(pl.col("value").null_count() == 0).then(pl.col("value").max())
    )
    scrapes = read.select("server", "time_ms").unique().sort("server", "time_ms")
    scrapes = scrapes.with_columns(before_ms=pl.col("time_ms").shift(1).over("server"))
    within = pl.col("time_ms").is_between(since_ms, until_ms, closed="left")
    passed_ms = pl.col("time_ms") - pl.col("before_ms")
    axis = once.select(*_SERVER, "time_ms").unique().join(scrapes, on=["server", "time_ms"])
    axis = axis.filter(within & (passed_ms <= LONGEST_MS))
    values = pl.concat([_levels(once.filter("is_level")), _rises(once.filter(~pl.col("is_level")), scrapes)])
    for name in (*_LEVELS, *_COUNTED):
        own = values.filter(pl.col("column") == name).drop("column").rename({"value": name})
        axis = axis.join(own, on=[*_SERVER, "time_ms"], how="left", nulls_equal=True)
    rates = (pl.col(name) * SECOND_MS / passed_ms for name in _COUNTED if name != FIRST_TOKEN)
    rows = axis.with_columns(*rates, time=pl.col("before_ms"), interval_ms=passed_ms)
    return ServedModels(servers, rows.drop("time_ms", "before_ms").sort(*_SERVER, "time"))


def _levels(once: pl.DataFrame) -> pl.DataFrame:
    """Return by column a model's sum or mean over series at a scrape; null for unknown series or impossible results."""
    divisors = once.filter("is_divisor").select("server", "model", "column", "key", "time_ms", over="value")
    values = once.filter(~pl.col("is_divisor"))
    known = values.join(divisors, on=["server", "model", "column", "key", "time_ms"], how="left", nulls_equal=True)
    share = pl.when(pl.col("over") > 0).then(pl.col("value") / pl.col("over"))
    value = pl.when("is_part").then(share).otherwise("value")  # without its whole, a part is no share, not even 0 or 1
    known = known.with_columns(value=pl.when(value >= 0).then(value))
    figure = pl.when(pl.col("mean").first()).then(pl.col("value").mean()).otherwise(pl.col("value").sum())
    impossible = (pl.col("value").null_count() > 0) | (pl.col("mean").first() & (pl.col("value").max() > 1))
    return known.group_by("column", *_SERVER, "time_ms").agg(value=pl.when(~impossible).then(figure))


def _rises(once: pl.DataFrame, scrapes: pl.DataFrame) -> pl.DataFrame:
    """Return by column the counters' rise since the scrape before; with a divisor, the ratio of two rises."""
    first_ms = scrapes.group_by("server").agg(first_ms=pl.col("time_ms").min())
    known = once.sort(*_SERIES, "time_ms").join(first_ms, on="server", maintain_order="left")
    begins = (pl.int_range(pl.len()).over(_SERIES) == 0) & (pl.col("time_ms") > pl.col("first_ms"))
    before = pl.when(begins).then(0.0).otherwise(pl.col("value").shift(1).over(_SERIES))
    rise = pl.when(pl.col("value") >= before).then(pl.col("value") - before).when(before.is_not_null()).then("value")
    rises = (
        known.with_columns(rise=rise)
        .group_by(*_COLUMN, "time_ms")
        .agg(value=pl.when(pl.col("rise").null_count() == 0).then(pl.col("rise").sum()))
    )
    keys = [*_SERVER, "column", "time_ms"]
    over = rises.filter("is_divisor").select(*keys, over="value")
    found = rises.filter(~pl.col("is_divisor")).join(over, on=keys, how="left", nulls_equal=True)
    ratio = pl.when(pl.col("over") > 0).then(pl.col("value") / pl.col("over"))
    value = pl.when(pl.col("column") == FIRST_TOKEN).then(ratio).otherwise("value")
    return found.select("column", *_SERVER, "time_ms", value=value)


_MEANING_SCHEMA = {
    "series": pl.UInt32(),
    "server": pl.UInt32(),
    "source": pl.String(),
    "model": pl.String(),
    "column": pl.String(),
    "is_divisor": pl.Boolean(),
    "is_level": pl.Boolean(),
    "is_part": pl.Boolean(),
    "mean": pl.Boolean(),
    "rank": pl.UInt32(),
    "key": pl.UInt32(),
}


def _meanings(labels: Sequence[Labels]) -> tuple[tuple[InferenceServer, ...], pl.DataFrame]:
    """Return the servers, and a row for each series and column that it fills."""
    names: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for each in labels:
        names[target_of(each)].add(each.get("__name__", ""))
    engines = {target: engine_of(of_target) for target, of_target in names.items()}
    servers: dict[InferenceServer, int] = {}
    keys: dict[object, int] = {}
    rows: list[tuple[object, ...]] = []
    for number, each in enumerate(labels):
        engine = engines[target_of(each)]
        if engine is None or any(each.get(part) for part in engine.parts):
            continue
        server = servers.setdefault(_server(each, engine), len(servers))
        source = "/".join((each.get("job", ""), *replicas_of(each)))
        model = engine.model(lambda name, each=each: each.get(name, ""))  # type: ignore[misc]
        for quantity, rank, is_divisor, is_part, dropped in _roles(engine, each):
            key = keys.setdefault(tuple(sorted((k, v) for k, v in each.items() if k not in dropped)), len(keys))
            role = (quantity.column, is_divisor, quantity in engine.levels, is_part, quantity.mean, rank, key)
            rows.append((number, server, source, model, *role))
    return tuple(servers), pl.DataFrame(rows, _MEANING_SCHEMA, orient="row")


def _roles(engine: Engine, labels: Labels) -> Iterator[tuple[EngineMetric, int, bool, bool, tuple[str, ...]]]:
    """Yield the columns that a series fills, with its role.

    The role is the rank of its metric, whether it is the divisor, whether it has one, and labels that do not
    distinguish it.
    """
    name = labels.get("__name__", "").removesuffix(TOTAL)
    for quantity in engine.quantities:
        for rank, source in enumerate(quantity.sources):
            for is_divisor, metric in enumerate(source.parts):
                if metric.takes(name, labels):
                    # of a share, both parts differ by name and label only
                    own = (source.label, source.parts[-1].label) if source.over else ()
                    is_part = source.over is not None and not is_divisor
                    yield quantity, rank, bool(is_divisor), is_part, ("__name__", *engine.copies, *own)


def _server(labels: Labels, engine: Engine) -> InferenceServer:
    cluster, pod = labels.get("cluster", ""), first_label(labels, POD)
    endpoint = labels.get("instance", "") or pod
    return InferenceServer(
        f"{cluster}/{endpoint}" if cluster else endpoint,
        first_label(labels, NAMESPACE),
        pod,
        first_label(labels, NODE),
        engine.name,
    )
