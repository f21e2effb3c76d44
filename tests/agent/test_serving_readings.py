"""From a server's text to numbers: the format, each engine's metrics, and counters from one answer to the next."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from agent.http_client import UnusableError
from agent.serving import readings
from agent.serving.readings import Exposition, Sample
from fallow import schema
from fallow.serving_engines import ENGINES, FIRST_TOKEN, OTHER_PREFIXES, recognise, wanted_names
from tests.agent import serving_texts as texts
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from agent.serving.readings import Reading

NAMES = wanted_names()
PREFIXES = tuple(engine.prefix for engine in ENGINES)
NO_TIMES = {"time_to_first_token_s": None}


def samples(text: str | bytes, name: str = "wanted", piece_bytes: int = 2**20) -> list[Sample]:
    exposition = Exposition({name}, (name[:3],))
    raw = text.encode() if isinstance(text, str) else text
    for at in range(0, len(raw), piece_bytes):
        exposition.feed(raw[at : at + piece_bytes])
    exposition.finish()
    return exposition.samples


def models(text: str) -> list[Reading]:
    exposition = Exposition(NAMES, PREFIXES)
    exposition.feed(text.encode())
    exposition.finish()
    engine = recognise(exposition.seen)
    assert engine is not None
    return readings.read(engine, exposition.samples)


def rates(before: str, now: str, elapsed_s: float = 10.0) -> dict[str | None, dict[str, float | None]]:
    earlier = {reading.model: reading for reading in models(before)}
    return {reading.model: readings.rates(earlier.get(reading.model), reading, elapsed_s) for reading in models(now)}


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("wanted 3", {}, 3.0),
        ("wanted_total 3", {}, 3.0),
        ("wanted{} 1e3", {}, 1000.0),
        ('wanted{a="b"} 3 1700000000000', {"a": "b"}, 3.0),
        ('wanted { a = "b" , c="d", } +4.5', {"a": "b", "c": "d"}, 4.5),
        ('wanted{a="}, c=\\"d\\" \\\\ \\n e"}\t-1', {"a": '}, c="d" \\ \n e'}, -1.0),
        ('wanted{a="ünï 漢"} 0', {"a": "ünï 漢"}, 0.0),
        ('wanted_total{a="b"} 3 1700000000.123 # {trace_id="x y"} 0.5 1700000000', {"a": "b"}, 3.0),
        ("wanted NaN", {}, None),
        ("wanted +Inf", {}, None),
        ("wanted 1\r", {}, 1.0),
    ],
)
def test_a_line_is_read(line: str, labels: dict[str, str], value: float | None) -> None:
    for piece_bytes in (1, 7, 1000):
        assert samples(f"# TYPE wanted gauge\n{line}\nunwanted 5", piece_bytes=piece_bytes) == [
            Sample("wanted", tuple(sorted(labels.items())), value)
        ]


@pytest.mark.parametrize("line", [
    "wanted", "wanted{", 'wanted{a="b" 3', "wanted three", "wanted 3 4 5 6", 'wanted{a="b",,c="d"} 3', "wanted{a=b} 3",
    "wanted 1_0", "wanted 0x10", 'wanted{"a"="b"} 1',
])  # fmt: skip
def test_a_line_that_cannot_be_read_spoils_the_answer(line: str) -> None:
    with pytest.raises(UnusableError, match="wanted cannot be read"):
        samples(line)


def test_other_metrics_are_not_even_looked_at() -> None:
    assert samples("other{ garbage\nwanted_bucket{le= garbage\nwanted_created 3\nwantedish 4\n# wanted 5\n") == []


def test_text_without_line_ends_is_given_up() -> None:
    with pytest.raises(UnusableError, match="lines"):
        samples(b"x" * 200_000, piece_bytes=50_000)


def test_too_many_series_are_given_up() -> None:
    with pytest.raises(UnusableError, match="20000 series"):
        samples("".join(f'wanted{{a="{number}"}} 1\n' for number in range(20_001)))


@given(
    labels=st.dictionaries(st.from_regex(r"l_[a-z]{1,8}", fullmatch=True), st.text(max_size=20), max_size=4),
    value=st.floats(allow_subnormal=False),
)
def test_what_the_official_client_writes_is_read_back(labels: dict[str, str], value: float) -> None:
    registry = prometheus_client.CollectorRegistry()
    gauge = prometheus_client.Gauge("wanted", 'with "quotes"\nand lines', sorted(labels), registry=registry)
    (gauge.labels(**labels) if labels else gauge).set(value)
    counter = prometheus_client.Counter("wanting", "", sorted(labels), registry=registry)
    (counter.labels(**labels) if labels else counter).inc(5)
    shown = tuple(sorted((name, text) for name, text in labels.items()))
    for text in (prometheus_client.generate_latest(registry), openmetrics(registry)):
        assert samples(text) == [Sample("wanted", shown, value if math.isfinite(value) else None)]
        assert samples(text, "wanting") == [Sample("wanting", shown, 5.0)]


def test_vllm() -> None:
    (reading,) = models(texts.vllm())
    assert reading.model == "meta-llama/Llama-3.1-8B"
    assert reading.levels == {"kv_cache_used_ratio": 0.5, "running_requests": 3.0, "waiting_requests": 3.0}
    assert rates(texts.vllm(), texts.vllm(generated=52_500, finished=(45, 3))) == {
        reading.model: {
            "requests_per_s": 0.7,
            "prompt_tokens_per_s": 0.0,
            "generated_tokens_per_s": 50.0,
            "time_to_first_token_s": None,
        }
    }


def test_the_time_to_the_first_token_is_a_mean_of_the_answers_since_the_scrape_before() -> None:
    labels = '{engine="0",model_name="m"}'
    pages = [
        f"vllm:time_to_first_token_seconds_sum{labels} {seconds}\nvllm:time_to_first_token_seconds_count{labels}"
        f" {count}\n"
        for seconds, count in ((12.5, 42), (14.5, 46))
    ]
    assert rates(*pages)["m"]["time_to_first_token_s"] == 0.5
    assert rates(pages[0], pages[0])["m"]["time_to_first_token_s"] is None


def test_vllm_before_the_cache_metric_was_renamed() -> None:
    (reading,) = models(re.sub(r"vllm:kv_cache_usage_perc.*\n", "", texts.vllm()))
    assert reading.levels["kv_cache_used_ratio"] == 0.9


@pytest.mark.parametrize("all_ranks", [False, True])
def test_sglang(*, all_ranks: bool) -> None:
    (reading,) = models(texts.sglang(all_ranks=all_ranks))
    assert reading.model == "qwen"
    assert reading.levels == {"kv_cache_used_ratio": 0.3, "running_requests": 8.0, "waiting_requests": 0.0}
    moved = rates(texts.sglang(all_ranks=all_ranks), texts.sglang(decoded=7100, prefilled=3050, all_ranks=all_ranks))
    assert (
        moved["qwen"] == {"requests_per_s": 0.0, "prompt_tokens_per_s": 10.0, "generated_tokens_per_s": 20.0} | NO_TIMES
    )


def test_sglang_before_it_counted_tokens_as_they_came() -> None:
    text = re.sub(r"sglang:realtime.*\n", "", texts.sglang())
    later = re.sub(r'(generation_tokens_total.*"true"}) 6.0', r"\1 36.0", text)
    moved = rates(text, later)
    assert (
        moved["qwen"] == {"requests_per_s": 0.0, "prompt_tokens_per_s": 0.0, "generated_tokens_per_s": 3.0} | NO_TIMES
    )


def test_triton() -> None:
    chat, resnet, trt = models(texts.triton())
    assert [each.model for each in (chat, resnet, trt)] == ["chat:1", "resnet:2", "trt:1"]
    assert resnet.levels == {"kv_cache_used_ratio": None, "running_requests": None, "waiting_requests": 5.0}
    assert trt.levels == {"kv_cache_used_ratio": 0.25, "running_requests": 4.0, "waiting_requests": 6.0}
    moved = rates(texts.triton(), texts.triton(success=110))
    assert moved["resnet:2"] == {"requests_per_s": 2.0, "prompt_tokens_per_s": None, "generated_tokens_per_s": None}
    assert moved["chat:1"] == {"requests_per_s": 0.0, "prompt_tokens_per_s": 0.0, "generated_tokens_per_s": 0.0}


def test_tgi() -> None:
    (reading,) = models(texts.tgi())
    assert reading.model is None
    assert reading.levels == {"running_requests": 8.0, "waiting_requests": 2.0}
    assert rates(texts.tgi(), texts.tgi(success=20)) == {
        None: {"requests_per_s": 1.0, "prompt_tokens_per_s": 1000.0, "generated_tokens_per_s": 100.0}
    }


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (texts.vllm(generated=100), texts.vllm(generated=99)),
        (texts.vllm(), texts.vllm().replace('engine="1"', 'engine="2"')),
        (texts.vllm(), texts.vllm().replace("vllm:generation_tokens_total", "vllm:something_else")),
        (texts.vllm().replace("vllm:generation_tokens_total", "vllm:something_else"), texts.vllm()),
        (texts.vllm(), texts.vllm(generated=math.nan)),
        (texts.vllm(model="one"), texts.vllm(model="two")),
    ],
    ids=["went back", "other engines", "gone", "new", "not a number", "other model"],
)
def test_counters_that_cannot_be_compared_have_no_rate(before: str, now: str) -> None:
    ((_, moved),) = rates(before, now).items()
    assert moved["generated_tokens_per_s"] is None


def test_one_series_that_begins_anew_is_not_hidden_by_the_others() -> None:
    before = texts.vllm(finished=(40, 2))
    now = texts.vllm(finished=(90, 1))  # more in all
    assert rates(before, now)["meta-llama/Llama-3.1-8B"]["requests_per_s"] is None


def test_a_series_that_appears_counts_from_its_first_request() -> None:
    before = re.sub(r".*length.*\n", "", texts.vllm())
    assert rates(before, texts.vllm(finished=(40, 2)))["meta-llama/Llama-3.1-8B"]["requests_per_s"] == 0.4


@pytest.mark.parametrize(
    ("column", "metric", "old", "new"),
    [
        ("kv_cache_used_ratio", "vllm:kv_cache_usage_perc", "0.75", "75"),
        ("kv_cache_used_ratio", "vllm:kv_cache_usage_perc", "0.75", "-0.1"),
        ("running_requests", "vllm:num_requests_running", "3", "-1"),
        ("running_requests", "vllm:num_requests_running", "3", "NaN"),
    ],
)
def test_values_that_cannot_be_are_unknown(column: str, metric: str, old: str, new: str) -> None:
    labels = '{engine="0",model_name="meta-llama/Llama-3.1-8B"}'
    good = texts.vllm()
    bad = re.sub(re.escape(f"{metric}{labels} ") + re.escape(old) + r".*", f"{metric}{labels} {new}", good)
    assert (len(models(bad)), models(bad)[0].levels[column]) == (1, None)
    assert models(good)[0].levels[column] is not None


def test_a_server_that_says_nothing_of_use_is_still_recognised() -> None:
    (reading,) = models("vllm:brand_new_metric 5\n")
    assert reading.model is None
    assert set(reading.levels.values()) == {None}
    assert recognise(set()) is None


def test_engines_fill_columns_of_the_table() -> None:
    columns = {column.name for column in schema.table("serving").columns}
    for engine in ENGINES:
        assert {quantity.column for quantity in (*engine.levels, *engine.counters)} <= columns
        assert {quantity.column for quantity in engine.counters} <= {
            name for name in columns if name.endswith("_per_s") or name == FIRST_TOKEN
        }


def test_the_page_names_every_engine_and_metric() -> None:
    page = Path(REPOSITORY, "docs", "inference-servers.md").read_text(encoding="utf-8")
    named = frozenset[str]().union(*(engine.names for engine in ENGINES if engine not in OTHER_PREFIXES))
    assert [name for name in sorted(named) if name not in page] == []
    assert [engine.prefix for engine in OTHER_PREFIXES if f"`{engine.prefix}`" not in page] == []
    assert [engine.name for engine in ENGINES if engine.name not in page.lower()] == []
