"""The rules of deploy/prometheus and the queries of deploy/grafana, as Prometheus itself takes them."""

from __future__ import annotations

import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
import yaml

from agent.metrics.collector import collect as collect_agent
from dashboard.metrics import CASH
from dashboard.metrics import collect as collect_pages
from fallow.exposition import TEXT
from tests.agent.snapshots import snapshot
from tests.conftest import REPOSITORY
from tests.dashboard.sites import make_site
from tests.deploy.queries import BOARDS, RULES, dcgm_dashboard, expressions, rules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dashboard.view import View

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (package prometheus)"),
]


_HOST = {"mem_used_bytes": 1 << 39, "mem_total_bytes": 1 << 40, "net_receive_bytes_per_s": 7e6}
_HOST["net_transmit_bytes_per_s"] = 8e6
"""What the snapshot of the agent's own tests leaves open."""


def promtool(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_rules(tmp_path: Path) -> None:
    promtool(tmp_path, "check", "rules", str(RULES))


def test_the_rules_say_what_they_should_of_a_small_fleet(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    shutil.copy(REPOSITORY / "tests" / "deploy" / "prometheus" / "rules_test.yaml", tmp_path)
    promtool(tmp_path, "test", "rules", "rules_test.yaml")


def test_every_rule_is_tried() -> None:
    tried = (REPOSITORY / "tests" / "deploy" / "prometheus" / "rules_test.yaml").read_text(encoding="utf-8")
    names = {each.get("alert") or each["record"] for each in rules()}
    assert {name for name in names if f": {name}\n" not in tried} == set()


def test_every_alert_has_a_severity_and_says_what_is_wrong() -> None:
    alerts = [each for each in rules() if "alert" in each]
    assert len(alerts) == len({each["alert"] for each in alerts}) > 5
    for each in alerts:
        assert each["labels"]["severity"] in ("info", "warning")
        assert each["annotations"]["summary"]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    """Sixteen days of ten GPUs: enough for every figure but cash, as no recommendation ends spending."""
    return make_site(tmp_path_factory.mktemp("site"), days=16).view()


def test_every_query_is_answered_by_a_prometheus_that_scrapes_both(view: View, tmp_path: Path) -> None:
    now_ms = round(time.time() * 1000)
    seen = snapshot(now_ms)
    seen = replace(seen, host_row=(seen.host_row or {}) | _HOST)
    pages = {
        "/agent": collect_agent((seen, 1.5)).render(TEXT),
        "/pages": collect_pages(view, now_ms, is_stale=False).render(TEXT),
    }
    with _served(pages) as port, _prometheus(tmp_path, port) as ask:
        for name in [each.name for each in BOARDS]:
            for each in expressions(name):
                assert ask(each) or CASH.name in each, f"nothing answers {each}"
        for title, query in dcgm_dashboard()["panels"].items():
            assert ask(query), f"nothing answers {title} of NVIDIA's dashboard"
        for rule in rules():
            if "record" in rule:
                assert ask(rule["expr"]), rule


def test_prometheus_has_no_other_advice_on_names_than_seconds(view: View) -> None:
    """GPU-hours stay hours, as everywhere."""
    page = collect_pages(view, 0, is_stale=False).render(TEXT)
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False, timeout=60)
    told = (done.stdout + done.stderr).decode().splitlines()
    assert [each for each in told if not each.endswith('use base unit "seconds" instead of "hours"')] == []


@contextmanager
def _served(pages: dict[str, bytes]) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", TEXT)
            self.end_headers()
            self.wfile.write(pages[self.path])

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


@contextmanager
def _prometheus(folder: Path, target_port: int) -> Iterator[Any]:
    """A Prometheus that has scraped both; gives what asks it a query."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    scrapes = [
        {"job_name": name, "metrics_path": path, "static_configs": [{"targets": [f"127.0.0.1:{target_port}"]}]}
        for name, path in (("fallow", "/agent"), ("fallow-dashboard", "/pages"))
    ]
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": scrapes}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    flags = ["--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.path=tsdb"]
    with subprocess.Popen(
        ["prometheus", *flags], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:

        def ask(query: str) -> Any:
            address = f"http://127.0.0.1:{port}/api/v1/query?{urlencode({'query': query})}"
            with urllib.request.urlopen(address, timeout=30) as answer:
                return json.load(answer)["data"]["result"]

        try:
            _wait_until_scraped(ask)
            yield ask
        finally:
            process.terminate()
            process.wait(timeout=60)


def _wait_until_scraped(ask: Any) -> None:
    """Both, and often enough for a rate."""
    for _ in range(600):
        time.sleep(0.1)
        try:
            if len(ask("count_over_time(up[1m]) >= 3")) == 2 and len(ask("up == 1")) == 2:
                return
        except OSError:  # it is not there yet
            continue
    raise AssertionError("Prometheus has not scraped")
