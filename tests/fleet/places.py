"""Where a fleet's lake lies: a folder whose mount can vanish, or a real S3 server whose network can."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fallow.lake import Lake
from fallow.stores import objects
from tests.publishing import swift
from tests.publishing.conftest import BUCKET, make_bucket
from tests.publishing.proxy import FaultyProxy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from random import Random

_WAYS = ("refuse", "drop", "drop_answer")
_SKEW_S = 400 * 86_400  # whoever looks into the lake lives today, and hosts whose clock is wrong may write all the same


class Place(Protocol):
    """A lake's location, what reaches it, and how it goes away and comes back."""

    location: str
    environment: Mapping[str, str]
    strays: int
    """Files that were written where the lake was not."""
    is_away: bool

    def vanish(self, chance: Random) -> None: ...

    def come_back(self) -> None: ...


@dataclass
class FolderPlace:
    """A mount that goes leaves the empty folder that it was mounted on."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    strays: int = 0
    is_away: bool = False

    @property
    def location(self) -> str:  # type: ignore[override]
        return str(self.folder / "lake")

    def vanish(self, chance: Random) -> None:  # noqa: ARG002
        self.is_away = True
        Path(self.location).rename(self.folder / "mounted")
        Path(self.location).mkdir()

    def come_back(self) -> None:
        self.strays += sum(len(files) for _, _, files in os.walk(self.location))
        Path(self.location).rename(self.folder / f"root-disk-{len(list(self.folder.iterdir()))}")
        (self.folder / "mounted").rename(self.location)
        self.is_away = False


@dataclass
class ServerPlace:
    """An S3 server behind a proxy that resets connections, or cuts them before the request or its answer is through."""

    location: str
    environment: Mapping[str, str]
    proxy: FaultyProxy
    strays: int = 0
    is_away: bool = False

    def vanish(self, chance: Random) -> None:
        self.is_away = True
        self.proxy.behave(chance.choice(_WAYS))

    def come_back(self) -> None:
        self.proxy.behave("pass")
        self.is_away = False


@contextlib.contextmanager
def place_of(store: str, folder: Path) -> Iterator[Place]:
    """`folder`, or `s3`: the server that FALLOW_TEST_S3_URL and the AWS_ variables name, else a Swift of its own."""
    folder.mkdir(parents=True)
    if store == "folder":
        (folder / "lake").mkdir()
        yield FolderPlace(folder)
        return
    with contextlib.ExitStack() as stack:
        location, environment = os.environ.get("FALLOW_TEST_S3_URL"), dict(os.environ)
        if location is None:
            port = stack.enter_context(swift.running(folder, _SKEW_S))
            environment = swift.aws_environment(port)
            make_bucket(environment, BUCKET)
            location = f"s3://{BUCKET}"
        else:
            port = int(environment["AWS_ENDPOINT_URL"].rpartition(":")[2])
        proxy = stack.enter_context(FaultyProxy(port))
        reached = {name: value for name, value in environment.items() if name.startswith("AWS_")}
        os.environ.update(reached)  # this process looks into the lake past the proxy
        objects._client.cache_clear()  # noqa: SLF001  # it has been asked for another store before
        own = f"{location.rstrip('/')}/fleet-{os.getpid()}-{os.urandom(3).hex()}"
        yield ServerPlace(own, reached | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}, proxy)


def lake_of(place: Place) -> Lake:
    return Lake.at(place.location)
