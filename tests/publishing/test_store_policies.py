"""A host's credentials write that host's files alone: the policies under deploy/, enforced by a real Ceph gateway."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from agent.spool.publisher import Publisher
from agent.spool.spool import Spool
from fallow.errors import LakeError
from fallow.lake import Lake, LakeFile
from fallow.lake_init import init_lake
from fallow.lake_marker import MARKER_KEY
from fallow.stores import objects
from tests.conftest import REPOSITORY, run_python
from tests.publishing import ceph
from tests.publishing.conftest import S3, forget_clients
from tests.publishing.rows import numbers, ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.publishing.ceph import Ceph

POLICIES = REPOSITORY / "deploy" / "store-policies"
BUCKET, PREFIX = "fallow-hosts", "site/lake"
LOCATION = f"s3://{BUCKET}/{PREFIX}"
DATE = "2024-10-04"


def statements(host: str) -> list[dict[str, Any]]:
    """The statements of the template for one host, whose user at the store has the same name."""
    text = (POLICIES / "ceph-bucket.json").read_text(encoding="utf-8")
    for word, value in (("BUCKET", BUCKET), ("PREFIX", PREFIX), ("HOST", host), ("USER", host), ("SERVICE", "owner")):
        text = text.replace(word, value)
    found: list[dict[str, Any]] = json.loads(text)["Statement"]
    return [each | {"Sid": f"{each['Sid']}{number}{host}"} for number, each in enumerate(found)]


def test_the_policies_for_amazon_and_ceph_say_the_same() -> None:
    amazon, ceph_s = (json.loads((POLICIES / name).read_text()) for name in ("aws-iam-host.json", "ceph-bucket.json"))
    ceph_s["Statement"] = [each for each in ceph_s["Statement"] if not each["Sid"].startswith("Service")]
    for each in ceph_s["Statement"]:
        assert each.pop("Principal") == {"AWS": ["arn:aws:iam:::user/USER"]}
    assert json.loads(json.dumps(amazon).replace("${aws:PrincipalTag/fallow-host}", "HOST")) == ceph_s


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ceph]:
    if lacking := ceph.missing():
        pytest.skip(lacking)
    with ceph.running(tmp_path_factory.mktemp("ceph")) as found:
        for user in ("owner", "h1", "h2"):
            found.add_user(user)
        found.make_bucket("owner", BUCKET)
        found.set_policy(
            "owner", BUCKET, {"Version": "2012-10-17", "Statement": [*statements("h1"), *statements("h2")]}
        )
        yield found


@pytest.fixture
def act(gateway: Ceph, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Lake]]:
    """The lake as a user reaches it from now on."""

    def become(user: str) -> Lake:
        S3(LOCATION, gateway.environment(user), gateway.port).apply(monkeypatch)
        return Lake.at(LOCATION)

    yield become
    forget_clients()


@pytest.mark.long
def test_a_hosts_credentials_write_its_own_files_and_nothing_else(act: Callable[[str], Lake], tmp_path: Path) -> None:
    init_lake(act("owner"))
    for host in ("h1", "h2"):
        with closing(Spool(str(tmp_path / host))) as spool:
            spool.append({"gpu": ticks(0, 3)})
            publisher = Publisher(spool, act(host), host)
            publisher.run()
            publisher.run()
            publisher.admission.leave()
    lake = act("owner")
    assert numbers(lake) == [0, 0, 1, 1, 2, 2]
    [own] = lake.files("gpu", hosts=["h1"])
    [other] = lake.files("gpu", hosts=["h2"])
    lake = act("h1")
    forged = LakeFile("gpu", DATE, "h2", 1, 2)
    allocation = next(each.key for each in act("owner").store.list("agents/host=h2"))
    act("h1")
    for attempt in (
        lambda: lake.put(forged, b"x"),
        lambda: lake.store.put(allocation, b"x"),
        lambda: lake.store.put(MARKER_KEY, b"x"),
        lambda: lake.store.put("ledger/date=2024-10-04/0-0.parquet", b"x"),
        lambda: lake.delete(other),
        lambda: lake.store.delete(allocation),
        lambda: lake.store.delete(MARKER_KEY),
        lambda: objects.read(other.url),
        lambda: lake.files("gpu", hosts=["h2"], dates=[DATE]),
        lambda: lake.files("gpu"),
    ):
        with pytest.raises(LakeError, match="access is denied"):
            attempt()
    lake.delete(own)
    assert numbers(act("owner")) == [0, 1, 2]


@pytest.mark.long
def test_the_doctor_is_content_with_such_credentials(act: Callable[[str], Lake], gateway: Ceph) -> None:
    init_lake(act("owner"))
    done = run_python("-m", "agent.doctor.store_probe", LOCATION, "h1", "m" * 32, **gateway.environment("h1"))
    said = [json.loads(line) for line in done.stdout.splitlines()]
    told = {key: value for line in said for key, value in line.items() if key != "step"}
    assert (told["listed"], told["deleted"], told.get("failed")) == (True, True, None), done
