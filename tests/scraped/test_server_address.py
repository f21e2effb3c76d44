"""Where a server is, who asks, and selectors for servers that are not asked in PromQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.ways import LabelMatcher, matchers
from fallow.config import load
from fallow.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


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
    assert not any(
        ServerAddress(url, user="u").is_overheard for url in ("https://p", "http://127.0.0.1:1", "http://[::1]")
    )
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
    flags = {
        "prometheus.url": "http://p",
        "prometheus.headers": "X-Team: a, X-Other: b:c, Accept: d, e",
        "prometheus.tenant": "t",
    }
    address = ServerAddress.of(load(flags, environment={}), {"FALLOW_PROM_TOKEN": "from-environment"})
    sent = {
        "X-Team": "a",
        "X-Other": "b:c",
        "Accept": "d, e",
        "X-Scope-OrgID": "t",
        "Authorization": "Bearer from-environment",
    }
    assert address.sent_headers() == sent
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
