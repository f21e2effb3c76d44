"""An object store for the tests: the one that the environment names, else a Swift of their own."""

from __future__ import annotations

import os
import uuid
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
import pytest
from obstore.store import S3Store

from agent.spool.spool import Spool
from fallow.stores import objects
from tests.publishing import swift
from tests.publishing.rows import adopted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from fallow.lake import Lake

BUCKET = "fallow-tests"


def forget_clients() -> None:
    """Lets go of open connections; the next use reads the environment again."""
    objects._client.cache_clear()  # noqa: SLF001  # a process of the product has one environment all its life


@dataclass(frozen=True)
class S3:
    """An S3-compatible store: the lake's address in it, what reaches it, and its port on loopback (None: elsewhere)."""

    location: str
    environment: Mapping[str, str]
    port: int | None

    def apply(self, patch: pytest.MonkeyPatch, **other: str) -> None:
        """Makes this process's environment lead to the store."""
        forget_clients()
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in {**self.environment, **other}.items():
            patch.setenv(name, value)


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """FALLOW_TEST_S3_URL (s3://bucket/prefix) with the AWS_ variables, or a Swift that the tests start."""
    if location := os.environ.get("FALLOW_TEST_S3_URL"):
        environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        endpoint = urlsplit(environment.get("AWS_ENDPOINT_URL", ""))
        near = (endpoint.scheme, endpoint.hostname) == ("http", "127.0.0.1")
        yield S3(location, environment, endpoint.port if near else None)
        return
    if lacking := swift.missing():
        pytest.skip(lacking)
    with swift.running(tmp_path_factory.mktemp("swift")) as port:
        environment = swift.aws_environment(port)
        make_bucket(environment, BUCKET)
        yield S3(f"s3://{BUCKET}/lake", environment, port)


def make_bucket(environment: Mapping[str, str], bucket: str) -> None:
    """Makes the bucket: a PUT of its name, which no store's client for objects offers by another way."""
    server = S3Store(
        "unused",
        endpoint=environment["AWS_ENDPOINT_URL"],
        access_key_id=environment["AWS_ACCESS_KEY_ID"],
        secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region=environment["AWS_REGION"],
        virtual_hosted_style_request=True,
        client_options={"allow_http": True},
    )
    try:
        obstore.put(server, bucket, b"", use_multipart=False)
    except obstore.exceptions.GenericError as error:
        if "MissingEtag" not in str(error):  # the answer names no version, as a bucket has none
            raise


@pytest.fixture
def s3(object_store: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """The store with a place in it that no other test uses; this process's environment leads there."""
    own = replace(object_store, location=f"{object_store.location}/{uuid.uuid4().hex}")
    own.apply(monkeypatch)
    yield own
    forget_clients()


@pytest.fixture
def local_s3(s3: S3) -> S3:
    """A store on loopback, so that a proxy can stand before it."""
    if s3.port is None:
        pytest.skip("FALLOW_TEST_S3_URL names a store that no proxy of the tests stands before")
    return s3


@pytest.fixture
def spool(tmp_path: Path, lake: Lake) -> Iterator[Spool]:
    """The spool of an agent that has published into the lake before."""
    with closing(Spool(str(tmp_path / "spool"), for_agent=True)) as made:
        yield adopted(made, lake)
