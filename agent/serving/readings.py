"""Readings of each model from one answer of a server, and rates from two answers.

Metrics in Prometheus' text format and OpenMetrics are parsed block by block as they arrive. Only the requested samples are kept,
because an answer has up to 4 MiB, of which a few dozen lines matter.

The supported servers are data: which of their metrics fill which column. To add a server, describe it here;
docs/inference-servers.md names the sources. Names are written without `_total`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.http_client import UnusableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

_LABELS = r'(?:[^"}]|"(?:[^"\\]|\\.)*")*'
_SAMPLE = re.compile(rf"([^\s{{]+)\s*(?:\{{({_LABELS})\}})?\s*(\S+)(?:\s+[-+.\deE]+)?\s*(?:#.*)?")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.ASCII)
_ESCAPED = re.compile(r"\\(.)")
_VALUE = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?inf(inity)?|nan", re.IGNORECASE | re.ASCII)

_MOST_SAMPLES = 20_000
_LONGEST_LINE_BYTES = 2**16
_TOTAL = "_total"


@dataclass(frozen=True)
class Sample:
    name: str
    """Name of the metric without `_total`, which only some clients append to a counter's name."""
    labels: tuple[tuple[str, str], ...]
    """Labels, sorted by name."""
    value: float | None
    """None where the server reports NaN or infinity."""

    def label(self, name: str) -> str:
        """Return the label's value; empty without the label, which the format treats as the same."""
        return dict(self.labels).get(name, "")


class Exposition:
    """The parser of one answer of a server.

    Any method may raise UnusableError for text that is not in the format: the share of an unreadable sample in a sum is unknown.
    """

    def __init__(self, names: Collection[str], prefixes: Iterable[str]) -> None:
        """`names` are the metrics to keep, without `_total`; `prefixes` are prefixes of metric names to report in `seen`."""
        self._names = frozenset(names)
        self._wanted = tuple(name.encode() for name in sorted(self._names))
        self._prefixes = tuple(prefix.encode() for prefix in prefixes)
        self._unread = b""
        self.samples: list[Sample] = []
        self.seen: set[str] = set()
        """The prefixes that occurred in a metric's name."""

    def feed(self, block: bytes) -> None:
        text = self._unread + block
        end = text.rfind(b"\n") + 1
        self._unread = text[end:]
        if len(self._unread) > _LONGEST_LINE_BYTES:
            raise UnusableError("its metrics are not lines of text")
        self._read(text[:end])

    def finish(self) -> None:
        text, self._unread = self._unread, b""
        self._read(text)

    def _read(self, text: bytes) -> None:
        for line in text.split(b"\n"):
            if line.startswith(self._prefixes):
                self.seen.update(prefix.decode() for prefix in self._prefixes if line.startswith(prefix))
            if line.startswith(self._wanted):
                self._keep(line)

    def _keep(self, line: bytes) -> None:
        name = re.split(rb"[\s{]", line, maxsplit=1)[0].decode("utf-8", "replace").removesuffix(_TOTAL)
        if name not in self._names:  # a longer name that begins with a wanted name
            return
        if len(self.samples) >= _MOST_SAMPLES:
            raise UnusableError(f"it has more than {_MOST_SAMPLES} series")
        match = _SAMPLE.fullmatch(line.decode("utf-8", "replace"))
        if match is None or not _VALUE.fullmatch(match[3]):
            raise UnusableError(f"its metric {name} cannot be read")
        value = float(match[3])
        self.samples.append(Sample(name, _labels(match[2] or "", name), value if math.isfinite(value) else None))


def _labels(text: str, name: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text) and not text[position:].isspace():
        match = _LABEL.match(text, position)
        if match is None:
            raise UnusableError(f"its metric {name} cannot be read")
        found[match[1]] = _ESCAPED.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], match[2])
        position = match.end()
    return tuple(sorted(found.items()))


@dataclass(frozen=True)
class Metric:
    """The series of one metric whose label has one of the given values."""

    name: str
    label: str = ""
    values: tuple[str, ...] = ()
    over: Metric | None = None
    """The divisor that makes the value a share."""


@dataclass(frozen=True)
class EngineMetric:
    """One column of the `serving` table."""

    column: str
    sources: tuple[Metric, ...]
    """The first metric that the server has counts: versions have renamed metrics, and some expose both names."""
    mean: bool = False
    """Whether the series of a model are averaged (shares) instead of summed (counts)."""


@dataclass(frozen=True)
class Engine:
    name: str
    prefix: str
    """Prefixes of its metrics' names; one name with a prefix identifies the server."""
    model_labels: tuple[str, ...]
    """Labels that name the model, joined by a colon."""
    levels: tuple[EngineMetric, ...]
    counters: tuple[EngineMetric, ...]
    """Counters since the server's start; the column is the rate."""
    copies: tuple[str, ...] = ()
    """Labels by which the server repeats the same count: the largest value counts."""
    parts: tuple[str, ...] = ()
    """Labels that are empty in the total and set in its parts: the parts are ignored."""


def _plain(column: str, *names: str, mean: bool = False) -> EngineMetric:
    return EngineMetric(column, tuple(Metric(name) for name in names), mean=mean)


VLLM = Engine(
    "vllm",
    "vllm:",
    model_labels=("model_name",),
    levels=(
        _plain("kv_cache_used_ratio", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", mean=True),
        _plain("running_requests", "vllm:num_requests_running"),
        _plain("waiting_requests", "vllm:num_requests_waiting"),
    ),
    counters=(
        _plain("requests_per_s", "vllm:request_success"),
        _plain("prompt_tokens_per_s", "vllm:prompt_tokens"),
        _plain("generated_tokens_per_s", "vllm:generation_tokens"),
    ),
)
"""Data-parallel engines differ by the label `engine`, ends of requests by `finished_reason`."""

SGLANG = Engine(
    "sglang",
    "sglang:",
    model_labels=("model_name",),
    levels=(
        _plain("kv_cache_used_ratio", "sglang:token_usage", mean=True),
        _plain("running_requests", "sglang:num_running_reqs"),
        _plain("waiting_requests", "sglang:num_queue_reqs"),
    ),
    counters=(
        _plain("requests_per_s", "sglang:num_requests"),
        EngineMetric(
            "prompt_tokens_per_s",
            (
                Metric("sglang:realtime_tokens", "mode", ("prefill_compute", "prefill_cache")),
                Metric("sglang:prompt_tokens"),
            ),
        ),
        EngineMetric(
            "generated_tokens_per_s",
            (Metric("sglang:realtime_tokens", "mode", ("decode",)), Metric("sglang:generation_tokens")),
        ),
    ),
    copies=("tp_rank", "pp_rank", "moe_ep_rank"),
    parts=("priority",),
)
"""With --enable-metrics-for-all-schedulers every rank of a split model reports the same requests.

The real-time counters grow while a request runs, the older counters only at its end.
"""

_REQUESTS = "nv_trt_llm_request_metrics"
_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"

TRITON = Engine(
    "triton",
    "nv_inference_",
    model_labels=("model", "version"),
    levels=(
        EngineMetric(
            "kv_cache_used_ratio",
            (Metric(_BLOCKS, "kv_cache_block_type", ("used",), over=Metric(_BLOCKS, "kv_cache_block_type", ("max",))),),
            mean=True,
        ),
        EngineMetric("running_requests", (Metric(_REQUESTS, "request_type", ("scheduled",)),)),
        EngineMetric(
            "waiting_requests",
            (
                Metric(_REQUESTS, "request_type", ("waiting",)),
                Metric("nv_inference_pending_request_count"),
            ),
        ),
    ),
    counters=(
        _plain("requests_per_s", "nv_inference_request_success"),
        _plain("prompt_tokens_per_s", "vllm:prompt_tokens"),
        _plain("generated_tokens_per_s", "vllm:generation_tokens"),
    ),
)
"""The nv_trt_llm_ metrics are those of the TensorRT-LLM backend, whose requests wait inside it and not in Triton's queue;
the vllm: metrics are those of the vLLM backend, with Triton's labels. Other models have no token counts.
"""

TGI = Engine(
    "tgi",
    "tgi_",
    model_labels=(),
    levels=(
        _plain("running_requests", "tgi_batch_current_size"),
        _plain("waiting_requests", "tgi_queue_size"),
    ),
    counters=(
        _plain("requests_per_s", "tgi_request_success"),
        _plain("prompt_tokens_per_s", "tgi_request_input_length_sum"),
        _plain("generated_tokens_per_s", "tgi_request_generated_tokens_sum"),
    ),
)

ENGINES: tuple[Engine, ...] = (TRITON, VLLM, SGLANG, TGI)
"""The first recognised engine counts: Triton also exposes the metrics of the engines that it hosts."""


Series = tuple[tuple[str, str], ...]
Values = dict[Series, float | None]
_NAME = "__name__"  # as Prometheus itself treats the name, as a label


@dataclass(frozen=True)
class Reading:
    model: str | None
    levels: Mapping[str, float | None]
    """By column."""
    counters: Mapping[str, Values]
    """By column the value of each series, so that a sum does not hide a series that restarts at 0."""


def recognise(prefixes: Collection[str]) -> Engine | None:
    return next((engine for engine in ENGINES if engine.prefix in prefixes), None)


def wanted_names() -> frozenset[str]:
    quantities = [quantity for engine in ENGINES for quantity in (*engine.levels, *engine.counters)]
    sources = [source for quantity in quantities for source in quantity.sources]
    return frozenset(metric.name for source in sources for metric in (source, source.over or source))


def read(engine: Engine, samples: Iterable[Sample]) -> list[Reading]:
    """Return a reading per model; one without name and values where a recognised server reports no model."""
    by_model: defaultdict[str | None, list[Sample]] = defaultdict(list)
    for sample in samples:
        if not any(sample.label(part) for part in engine.parts):
            model = ":".join(name for label in engine.model_labels if (name := sample.label(label)))
            by_model[model or None].append(sample)
    if not by_model:
        by_model[None] = []
    return [
        Reading(
            model,
            {quantity.column: _level(engine, quantity, own) for quantity in engine.levels},
            {quantity.column: _first(engine, quantity, own) for quantity in engine.counters},
        )
        for model, own in sorted(by_model.items(), key=lambda item: item[0] or "")
    ]


def rates(before: Reading | None, now: Reading, elapsed_s: float) -> dict[str, float | None]:
    """Return the counters' increase per second by column; null where a value is unknown or the server has restarted."""
    known: Mapping[str, Values] = {} if before is None else before.counters
    return {column: _rate(known.get(column, {}), values, elapsed_s) for column, values in now.counters.items()}


def _rate(before: Values, now: Values, elapsed_s: float) -> float | None:
    if not before or not now or elapsed_s <= 0 or before.keys() - now.keys() or _names(before) != _names(now):
        return None
    increase = 0.0
    for series, value in now.items():
        earlier = before.get(series, 0.0)  # a series appears with its first count
        if value is None or earlier is None or value < earlier:
            return None
        increase += value - earlier
    return round(increase / elapsed_s, 3)


def _names(values: Values) -> frozenset[str]:
    return frozenset(dict(series)[_NAME] for series in values)


def _level(engine: Engine, quantity: EngineMetric, samples: Sequence[Sample]) -> float | None:
    """Return the sum or mean over the model's series; null where a series is unknown or the result is impossible."""
    values = _first(engine, quantity, samples).values()
    known = [value for value in values if value is not None and value >= 0]
    if not known or len(known) != len(values):
        return None
    if not quantity.mean:
        return round(sum(known), 3)
    return round(sum(known) / len(known), 4) if max(known) <= 1 else None


def _first(engine: Engine, quantity: EngineMetric, samples: Sequence[Sample]) -> Values:
    return next((values for source in quantity.sources if (values := _values(engine, source, samples))), {})


def _values(engine: Engine, source: Metric, samples: Sequence[Sample]) -> Values:
    if source.over is None:
        return _series(source, samples, engine.copies)
    dropped = (*engine.copies, source.label, source.over.label)
    wholes = _series(source.over, samples, dropped)
    return {key: _ratio(part, wholes.get(key)) for key, part in _series(source, samples, dropped).items()}


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _series(metric: Metric, samples: Sequence[Sample], dropped: Collection[str]) -> Values:
    """Return the metric's values by their labels without the dropped ones; of equal labels the largest value."""
    found: Values = {}
    for sample in samples:
        if sample.name != metric.name or (metric.label and sample.label(metric.label) not in metric.values):
            continue
        key = ((_NAME, sample.name), *((name, value) for name, value in sample.labels if name not in dropped))
        other = found.get(key, sample.value)
        found[key] = None if other is None or sample.value is None else max(other, sample.value)
    return found
