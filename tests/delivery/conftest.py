"""Real receivers on loopback: a mail server, and an HTTP receiver for webhooks."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.delivery.hands import Hands
from tests.delivery.mail_server import Mailbox, mail_server
from tests.delivery.receiver import Receiver
from tests.in_process import run_in_process
from tests.shared_results import one_ledger_for_many_looks

__all__ = ["one_ledger_for_many_looks"]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import RunFallow


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FALLOW_SMTP_PASSWORD", "FALLOW_CONFIG", "https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run_fallow() -> RunFallow:
    """The command in this process."""
    return run_in_process


@pytest.fixture
def hands() -> Hands:
    """Friday, 20 November 2026, 00:00 UTC."""
    return Hands()


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    """A server without TLS."""
    with mail_server(Mailbox()) as box:
        yield box


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of webhooks without TLS."""
    with Receiver() as started:
        yield started


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Signs the servers' certificates."""
    return trustme.CA()


@pytest.fixture(scope="session")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The authority's certificate."""
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="session")
def server_context(authority: trustme.CA) -> ssl.SSLContext:
    """For a server that is called localhost."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context
