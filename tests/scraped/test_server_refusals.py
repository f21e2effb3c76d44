"""No metrics server, access denied, broken off, silent or too long: one sentence, one remedy, no secret."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trustme

from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.answers import HttpAnswer, OversizedAnswerError, api_data, refusal
from analytics.scraped.server.connection import RequestPace, ServerConnection, ServerLimits
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.server.ways import LabelMatcher, matchers
from fallow.config import load
from fallow.errors import ConfigError, FallowError, InputError, UsageError
from tests.delivery.receiver import DRIP, DROP, HANG, Receiver
from tests.scraped.gateway import Answered, Evaluator, Gateway

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.scraped.gateway import Asked

ADDRESS = ServerAddress("http://127.0.0.1:9090")
SECRET = "s3cret-of-the-tests"  # noqa: S105  # known to everybody
LOGGED_IN = ServerAddress("http://127.0.0.1:9090", token=SECRET)
IMPATIENT = ServerLimits(rate=1e6, silence_s=0.2, connect_s=0.5, answer_s=0.5)


@pytest.fixture(autouse=True)
def _no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("status", "body", "says", "remedy"),
    [
        (401, b"", "answers 401", "set FALLOW_PROM_TOKEN"),
        (401, b"no org id", "answers 401: no org id", "prometheus.tenant"),
        (403, b'{"message":"Missing Authentication Token"}', "Missing Authentication Token", "aws-sigv4-proxy"),
        (404, b"404 page not found", "answers 404", "/api/datasources/proxy/uid/UID"),
        (405, b"", "answers 405", "it does not accept POST"),
        (400, b'{"status":"error","error":"parse error: x"}', "answers 400: parse error: x", "write --match"),
        (422, b'cannot parse matches[]={__name__=~"POWER_LIMIT",cluster=a}', "cannot parse", "write --match"),
        (
            400,
            b'unsupported path requested: "/select/0/api/v1/query"',
            "answers 400",
            "give the URL before /api/v1/query",
        ),
        (200, b'{"status":"error","error":"store is away"}', "answers 200: store is away", "the proxies before it"),
        (429, b"slow\ndown\x1b[2J", "answers 429: slow down?[2J", "prometheus.rate"),
        (200, b"<!doctype html><title>Grafana</title>", "Grafana answers", "/api/datasources/proxy/uid/UID"),
        (200, b"<html>It works!", "a web page answers", "give the URL"),
    ],
)
def test_an_answer_and_its_remedy(status: int, body: bytes, says: str, remedy: str) -> None:
    error = refusal(HttpAnswer(status, {}, body), ADDRESS)
    assert type(error) is InputError
    assert says in error.message
    assert remedy in error.hint


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (413, ""),
        (422, "query processing would load too many samples into memory in query execution"),
        (422, "the query exceeded the maximum number of chunks (limit: 2000000) (err-mimir-max-chunks-per-query)"),
        (422, "cannot select more than -search.maxSamplesPerQuery=1000 samples; solutions: to increase the limit"),
        (503, "query timed out in expression evaluation"),
        (400, "exceeded sample limit (50000000)"),
        (200, '{"status":"error","error":"query processing would load too many samples into memory"}'),
    ],
)
def test_what_a_shorter_span_remedies(status: int, error: str) -> None:
    assert isinstance(refusal(HttpAnswer(status, {}, error.encode()), ADDRESS), OversizedAnswerError)


def test_packed_samples_are_no_page_though_they_begin_like_one() -> None:
    sixty_bytes = HttpAnswer(200, {"content-type": "application/x-protobuf"}, b"<\xec")
    assert refusal(sixty_bytes, ADDRESS) is None


def test_a_login_that_is_refused_is_not_asked_for_and_not_shown() -> None:
    echo = f'{{"status":"error","error":"no such token: Bearer {SECRET}"}}'.encode()
    error = refusal(HttpAnswer(403, {}, echo), LOGGED_IN)
    assert "check the token" in str(error)
    assert SECRET not in f"{error}{error!r}{LOGGED_IN!r}"
    there = {"location": f"https://sso.example.org/login?back={SECRET}"}
    moved = str(refusal(HttpAnswer(302, there, b""), LOGGED_IN))
    assert "login page (https://sso.example.org/login)" in moved


def failing(url: str, limits: ServerLimits = IMPATIENT, **more: str) -> str:
    with pytest.raises(FallowError) as failed:
        MetricsServer.connect(ServerAddress(url, **more), limits)
    return str(failed.value)


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (HANG, "sent nothing for 0.2 s; check whether the server is busy"),
        (DRIP, "sent nothing for 0.2 s"),
        (DROP, "broke before its answer was whole"),
        (200, "is not that of a metrics server"),
    ],
    ids=["hangs", "lets bytes drip", "drops", "other"],
)
def test_a_server_that_says_nothing_of_use(answers: int, says: str) -> None:
    with Receiver() as receiver:
        receiver.answers = [answers] * 9
        assert says in failing(receiver.url(""), replace(IMPATIENT, answer_s=300))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            b'{"status":"success","isPartial":true,"data":[]}',
            "answers with only a part of its data; check which of its storage",
        ),
        (b'{"status":"success","data":[1', "is truncated or garbled"),
        (b'{"status":"error","data":[]}', "is not that of a metrics server"),
        (b'{"status":"success"}', "is not that of a metrics server"),
    ],
)
def test_an_answer_that_is_not_the_whole_one_is_none(body: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        api_data(body, LOGGED_IN, lambda _: None)


def test_a_body_that_drips_is_left_after_a_while() -> None:
    now_s = iter(range(0, 10**6, 100))
    with Gateway(lambda _, __: Answered(200, b"{}" * 9)) as gateway:
        limits = ServerLimits(rate=1e6, answer_s=50)
        connection = ServerConnection(ServerAddress(gateway.url), limits, now_s=lambda: next(now_s))
        with connection, pytest.raises(InputError, match="was not whole after 50 s"):
            connection.ask("/api/v1/query", {})


def test_nobody_there_and_no_such_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert "connection refused; check the host, the port" in failing(f"http://127.0.0.1:{port}")
    assert "its name cannot be resolved" in failing("http://nowhere.invalid")


def test_tls_by_an_authority_that_has_to_be_named(tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with Receiver(context) as receiver:
        url = receiver.url("", scheme="https")
        assert "its certificate is not accepted" in (said := failing(url))
        assert "give the authority that signed it as prometheus.ca_file" in said
        assert "is not that of a metrics server" in failing(url, ca_file=str(tmp_path / "ca.pem"))
        assert "broke before" in failing(receiver.url(""))
    assert "cannot read prometheus.ca_file" in failing("https://127.0.0.1", ca_file=str(tmp_path / "none.pem"))


def test_the_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with Gateway(Evaluator({})) as proxy:
        monkeypatch.setenv("http_proxy", f"ann:{SECRET}@{proxy.url.removeprefix('http://')}")
        assert "answers 404" in failing("http://nowhere.invalid")
        [asked] = proxy.asked
    assert asked.path == "http://nowhere.invalid/api/v1/query"
    assert asked.headers["proxy-authorization"].startswith("Basic ")
    monkeypatch.setenv("http_proxy", f"socks5://ann:{SECRET}@127.0.0.1:1")
    assert SECRET not in (said := failing("http://nowhere.invalid"))
    assert "the proxy of the variable http_proxy cannot be used; give it as" in said


class Naps:
    """A clock that sleeping moves, and nothing else."""

    def __init__(self) -> None:
        self.now, self.naps = 100.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.naps.append(round(seconds, 3))
        self.now += seconds

    def now_s(self) -> float:
        return self.now


def asking(answers: list[Answered], attempts: int) -> tuple[Naps, Callable[[], bytes]]:
    naps, left = Naps(), list(answers)

    def ask() -> bytes:
        with Gateway(lambda _, __: left.pop(0)) as gateway:
            address = ServerAddress(gateway.url)
            with ServerConnection(address, ServerLimits(rate=1e6), naps.sleep, naps.now_s) as connection:
                connection.attempts = attempts
                return connection.ask("/api/v1/query", {}).body

    return naps, ask


def test_a_busy_server_is_asked_again_when_it_says_or_ever_later() -> None:
    cut = Answered(200, b"{}" * 50, cut_at=20)
    naps, ask = asking(
        [Answered(503), cut, Answered(429, headers={"Retry-After": "7"}), Answered(502), Answered(200, b"{}")], 6
    )
    assert ask() == b"{}"
    assert naps.naps == [1.0, 2.0, 7.0, 8.0]


def test_it_gives_up_at_last_and_waits_no_year() -> None:
    naps, ask = asking([Answered(429, headers={"Retry-After": "31536000"})] * 3, 3)
    with pytest.raises(InputError, match="answers 429; try again later"):
        ask()
    assert naps.naps == [120.0, 120.0]
    _, ask = asking([Answered(200, b"no gzip", {"Content-Encoding": "gzip"})] * 2, 2)
    with pytest.raises(InputError, match="is truncated or garbled; try again"):
        ask()


def test_what_waiting_does_not_mend_is_asked_once() -> None:
    naps, ask = asking([Answered(401)], 6)
    with pytest.raises(InputError, match="answers 401"):
        ask()
    assert naps.naps == []


def test_an_answer_that_floods_is_cut_off_and_a_shorter_span_asked_for() -> None:
    series = [(1_790_000_000_000 + 1000 * number, "123456.789") for number in range(3000)]
    evaluator = Evaluator({"0": series})
    limits = ServerLimits(rate=1e6, answer_bytes=20_000)
    with Gateway(evaluator) as gateway, MetricsServer.connect(ServerAddress(gateway.url), limits) as server:
        pieces = list(server.samples("util", series[0][0], series[-1][0] + 1))
    assert sum(piece.frame.height for piece in pieces) == 3000
    assert len(pieces) > 3


def test_who_closes_waits_for_nobody() -> None:
    with Gateway(lambda _, __: Answered(503)) as gateway:
        connection = ServerConnection(ServerAddress(gateway.url), ServerLimits(rate=1e6))
        connection.attempts = 6
        threading.Timer(0.1, connection.close).start()
        with pytest.raises(InputError, match="broke"):
            connection.ask("/api/v1/query", {})
        assert len(gateway.asked) < 6, "the pauses are over, too"


def test_requests_keep_their_distance_and_all_wait_for_one() -> None:
    naps = Naps()
    pace = RequestPace(4.0, naps.now_s, naps.sleep)
    for _ in range(3):
        pace.wait()
    pace.hold(10)
    pace.wait()
    assert naps.naps == [0.25, 0.25, 10.0]


def test_no_more_requests_at_a_time_than_allowed() -> None:
    here, counts = list[str](), list[int]()
    evaluator = Evaluator({"0": [(1_790_000_000_000 + 1000 * number, "1") for number in range(600)]})

    def counted(asked: Asked, passed: Callable[[], Answered]) -> Answered:
        here.append(asked.path)
        counts.append(len(here))
        time.sleep(0.01)
        here.pop()
        return evaluator(asked, passed)

    limits = ServerLimits(rate=1e6, concurrency=2, piece_samples=20)
    with Gateway(counted) as gateway, MetricsServer.connect(ServerAddress(gateway.url), limits) as server:
        list(server.samples("util", 1_790_000_000_000, 1_790_000_600_000))
    assert max(counts) == 2


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("https://p.example.org:9090/", "https://p.example.org:9090"),
        ("http://p/select/0/prometheus", "http://p/select/0/prometheus"),
        ("http://p:9090/graph", "http://p:9090"),
        ("http://p/prometheus/api/v1/query", "http://p/prometheus"),
    ],
)
def test_an_address_is_what_stands_before_the_api(given: str, url: str) -> None:
    assert ServerAddress(given).url == url


@pytest.mark.parametrize(
    "url", ["p:9090", "", "ftp://p", "http://", "http://[::1", "http://p:x", "http://p /a", "http://p/?q=1"]
)
def test_what_is_no_address_is_told_with_an_example(url: str) -> None:
    with pytest.raises(ConfigError, match=r"give it as https://prometheus\.example\.org:9090"):
        ServerAddress(url)


def test_a_password_in_the_url_logs_in_and_is_never_shown() -> None:
    address = ServerAddress("https://ann:pa%3Ass-word@p.example.org/x")
    assert (address.url, address.user, address.password) == ("https://p.example.org/x", "ann", "pa:ss-word")
    assert address.sent_headers() == {"Authorization": "Basic YW5uOnBhOnNzLXdvcmQ="}
    assert "ss-word" not in repr(address)
    for bad in ("ftp://ann:pa-ss@p", "https://ann:pa-ss@p?x=1", "https://ann:pa-ss@p:x"):
        with pytest.raises(ConfigError) as failed:
            ServerAddress(bad)
        assert "pa-ss" not in str(failed.value)


def test_a_login_that_others_can_read_on_its_way_is_told() -> None:
    assert ServerAddress("http://p", user="u").is_overheard
    for safe in ("https://p", "http://127.0.0.1:1", "http://[::1]"):
        assert not ServerAddress(safe, user="u").is_overheard
    assert not ServerAddress("http://p").is_overheard


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"tenant": "a\r\nX-Admin: 1"}, "the header X-Scope-OrgID has characters that cannot be sent"),
        ({"token": "geheim\n"}, "the header Authorization has characters"),
        ({"headers": {"a b": "c"}}, "'a b' is not the name of a header"),
        ({"token": "t", "user": "u"}, "both a token and a user"),
    ],
)
def test_a_header_cannot_carry_another(more: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as failed:
        ServerAddress("http://p", **more)
    assert says in str(failed.value)
    assert "geheim" not in str(failed.value)


def test_settings_name_files_and_the_environment_has_secrets(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    others = "X-Team: a, X-Other: b:c, Accept: d, e"
    flags = {"prometheus.url": "http://p", "prometheus.headers": others, "prometheus.tenant": "t"}
    address = ServerAddress.of(load(flags, environment={}), {"FALLOW_PROM_TOKEN": "from-environment"})
    sent = {"X-Team": "a", "X-Other": "b:c", "Accept": "d, e", "X-Scope-OrgID": "t"}
    assert address.sent_headers() == sent | {"Authorization": "Bearer from-environment"}
    with_file = load(flags | {"prometheus.token_file": str(tmp_path / "token")}, environment={})
    rotated = ServerAddress.of(with_file, {"FALLOW_PROM_TOKEN": "x"})
    assert rotated.sent_headers()["Authorization"] == "Bearer from-file"
    (tmp_path / "token").write_text("an-hour-later")
    assert rotated.sent_headers()["Authorization"] == "Bearer an-hour-later"
    assert rotated.masked("no such token: an-hour-later") == "no such token: ***"
    nothing = load(flags | {"prometheus.token_file": str(tmp_path / "none")}, environment={})
    with pytest.raises(ConfigError, match=r"cannot read prometheus\.token_file .*: No such file"):
        ServerAddress.of(nothing, {})
    with pytest.raises(UsageError, match="--url is missing"):
        ServerAddress.of(load({}, environment={}), {})


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("up", [("__name__", "=", "up")]),
        (' a:b{ job = "x" , host=~"n1|n2",} ', [("__name__", "=", "a:b"), ("job", "=", "x"), ("host", "=~", "n1|n2")]),
        (r'{__name__=~"DCGM_.*",path!~"C:\\a\"b,c}"}', [("__name__", "=~", "DCGM_.*"), ("path", "!~", 'C:\\a"b,c}')]),
        (r"""{a='it"s',b!=`raw\d`}""", [("a", "=", 'it"s'), ("b", "!=", r"raw\d")]),
        (r'{"hw.gpu",  "host.name"="\u00e9\x41\n"}', [("__name__", "=", "hw.gpu"), ("host.name", "=", "éA\n")]),
    ],
)
def test_a_selector_is_taken_apart_as_prometheus_does(selector: str, found: list[tuple[str, str, str]]) -> None:
    assert matchers(selector) == tuple(LabelMatcher(*each) for each in found)


@pytest.mark.parametrize(
    "selector", ["", "{", "rate(up[5m])", 'up{job="a"', "up{job}", 'up{job="a" host="b"}', "up offset 5m"]
)
def test_anything_else_is_no_selector(selector: str) -> None:
    with pytest.raises(UsageError, match="is not a series selector"):
        matchers(selector)
