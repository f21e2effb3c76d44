"""A real object store: what is stored comes back and reads as from a folder; failures are sentences without secrets."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from analytics.simulation import SimulatedFleet, write_fleet
from fallow import parquet, schema
from fallow.clock import DAY_MS
from fallow.errors import BrokenFileError, FallowError, LakeError
from fallow.lake import Lake, LakeFile
from fallow.stores import objects
from tests.lakes import made_lake
from tests.publishing.proxy import FaultyProxy

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunFallow
    from tests.publishing.conftest import S3

pytestmark = pytest.mark.long

DATE = "2026-11-20"
SECRET = "hush-hush-nobody-may-read-this"  # noqa: S105  # what must not be seen


def a_file(first: int, last: int, host: str = "gn001") -> LakeFile:
    return LakeFile("gpu", DATE, host, first, last)


def test_what_is_stored_is_listed_confirmed_read_and_removed(s3: S3) -> None:
    lake = Lake.at(s3.location)
    assert not lake.store.exists()
    put = lake.put(a_file(0, 9), b"rows")
    assert put.url == f"{s3.location}/gpu/date={DATE}/host=gn001/0-9.parquet"
    assert lake.store.exists()
    assert lake.files("gpu") == [put]
    assert lake.files("gpu", hosts=["gn001"], dates=[DATE]) == [put]
    assert lake.files("process") == []
    lake.store.confirm(put.key, b"rows")
    assert objects.read(put.url) == b"rows"
    assert objects.read(put.url, 1, 3) == b"ow"
    lake.put(a_file(0, 9), b"other rows")
    assert lake.files("gpu")[0].size_bytes == 10
    lake.delete(put)
    lake.delete(put)
    assert lake.files("gpu") == []
    assert lake.store.look(put.key) is None
    with pytest.raises(FileNotFoundError):
        objects.read(put.url)


def test_a_span_of_dates_is_listed_without_the_dates_beside_it(s3: S3) -> None:
    lake = Lake.at(s3.location)
    days = [f"2026-11-{day}" for day in (18, 19, 20, 21, 22)]
    put = [lake.put(LakeFile("gpu", day, host, 0, 9), b"rows") for day in days for host in ("gn001", "gn002")]
    lake.put(LakeFile("host", days[2], "gn001", 0, 9), b"rows")
    assert lake.files("gpu", dates=days[1:4]) == put[2:8]
    assert lake.files("gpu", dates=[days[0], days[4]]) == [*put[:2], *put[8:]]
    assert lake.files("gpu", dates=["2026-11-17", "2026-11-23"]) == []
    assert lake.dates("gpu") == days
    assert lake.newest_files("gpu") == put[8:]


HOSTS = ["gn 01", "a/b", "host=x", "rack%2F1", "größe.example", "a'b\"c", "*?[x]", "x\ny", "..", "+&"]


def test_any_host_name_comes_back(s3: S3) -> None:
    lake = Lake.at(s3.location)
    for host in HOSTS:
        put = lake.put_confirmed(a_file(0, 9, host), b"rows")
        assert [file.host for file in lake.files("gpu", hosts=[host], dates=[DATE])] == [host]
        assert objects.read(put.url) == b"rows"


def test_a_store_that_holds_something_else_does_not_confirm(s3: S3) -> None:
    lake = Lake.at(s3.location)
    file = lake.put(a_file(0, 9), b"rows")
    with pytest.raises(LakeError, match=r"accepted 5 bytes for .* and has 4 bytes under this name"):
        lake.store.confirm(file.key, b"rows!")
    with pytest.raises(LakeError, match="the store has other bytes for"):
        lake.store.confirm(file.key, b"ROWS")
    lake.delete(file)
    with pytest.raises(LakeError, match=r"accepted 4 bytes for .* and does not have it"):
        lake.store.confirm(file.key, b"rows")


def test_a_large_object_is_read_by_ranges(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "WHOLE_BYTES", 10)
    lake = Lake.at(s3.location)
    content = bytes(range(256))
    put = lake.put(a_file(0, 9), content)
    file = objects.open_object(put.url, put.size_bytes)
    assert isinstance(file, objects.ObjectFile)
    assert file.seek(-6, 2) == 250
    assert file.read() == content[250:]
    assert file.read() == b""
    assert file.seek(10) == 10
    assert file.read(4) == content[10:14]
    assert file.tell() == 14


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": SECRET}, "the store does not accept the credentials; check key, secret and token"),
        (
            {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": SECRET},
            "check key, secret and token in the environment",
        ),
        ({"AWS_ALLOW_HTTP": ""}, "without TLS; use https://, or set AWS_ALLOW_HTTP=true"),
        ({"AWS_ENDPOINT_URL": "https://no.such.name.invalid"}, "the name no.such.name.invalid cannot be resolved"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "127.0.0.1:1 refuses the connection; check the endpoint"),
        ({"AWS_ENDPOINT_URL": f"https://me:{SECRET}@127.0.0.1:1"}, "AWS_ENDPOINT_URL contains credentials"),
        ({"AWS_ENDPOINT_URL": f"no address {SECRET}"}, "AWS_ENDPOINT_URL is not an address"),
        ({"AWS_CA_BUNDLE": "/nowhere"}, "cannot read AWS_CA_BUNDLE /nowhere: No such file"),
        ({"AWS_CA_BUNDLE": "/etc/hostname"}, "AWS_CA_BUNDLE /etc/hostname has no certificate"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_without_the_secret(
    s3: S3, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    monkeypatch.setattr(objects, "RETRIES", 1)
    s3.apply(monkeypatch, **variables)
    lake = Lake.at(s3.location)
    for use in (lambda: lake.put(a_file(0, 9), b"rows"), lambda: lake.files("gpu"), lake.store.exists):
        with pytest.raises(FallowError) as failed:
            use()
        assert said in str(failed.value)
        assert SECRET not in str(failed.value)
        assert "\n" not in str(failed.value)


@pytest.mark.usefixtures("s3")
def test_a_bucket_that_is_missing_is_named() -> None:
    lake = Lake.at("s3://fallow-tests-no-such-bucket/lake")
    missing = r"cannot store s3://fallow-tests-no-such-bucket/.*: the bucket does not exist; create it"
    with pytest.raises(LakeError, match=missing):
        lake.put(a_file(0, 9), b"rows")
    with pytest.raises(LakeError, match=r"cannot list .*: the bucket does not exist"):
        lake.require()


@pytest.mark.parametrize("way", ["refuse", "drop", "drop_answer"])
def test_a_broken_connection_is_tried_again_and_then_said(
    local_s3: S3, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(objects, "RETRIES", 2)
    with FaultyProxy(local_s3.port) as proxy:
        local_s3.apply(monkeypatch, AWS_ENDPOINT_URL=f"http://127.0.0.1:{proxy.port}")
        lake = Lake.at(local_s3.location)
        proxy.behave(way)
        with pytest.raises(LakeError, match=f"cannot store .*: the connection to 127.0.0.1:{proxy.port} broke"):
            lake.put(a_file(0, 9), b"rows" * 100)
        assert proxy.connections >= 3, "it was tried again"
        proxy.behave("pass")
        # the same content as before: a try that was given up may still arrive, after one that came later
        lake.put_confirmed(a_file(0, 9), b"rows" * 100)


def test_a_store_that_hangs_is_given_up(local_s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "REQUEST_TIMEOUT_S", 1)
    monkeypatch.setattr(objects, "RETRIES", 1)
    with FaultyProxy(local_s3.port) as proxy:
        local_s3.apply(monkeypatch, AWS_ENDPOINT_URL=f"http://127.0.0.1:{proxy.port}")
        proxy.behave("hang")
        with pytest.raises(LakeError, match="does not answer in time; check the store and the network"):
            Lake.at(local_s3.location).put(a_file(0, 9), b"rows")


def test_tls_is_checked_against_the_authorities_that_are_named(
    local_s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(objects, "RETRIES", 1)
    authority, stranger = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    stranger.cert_pem.write_to_path(str(tmp_path / "stranger.pem"))
    with FaultyProxy(local_s3.port, context) as proxy:
        reached = {"AWS_ENDPOINT_URL": f"https://localhost:{proxy.port}", "AWS_ALLOW_HTTP": ""}
        for name in ("AWS_CA_BUNDLE", "SSL_CERT_FILE"):
            local_s3.apply(monkeypatch, **reached, **{name: str(tmp_path / "authority.pem")})
            lake = Lake.at(local_s3.location)
            lake.put_confirmed(a_file(0, 9), b"rows")
            monkeypatch.delenv(name)
        for others in ({}, {"AWS_CA_BUNDLE": str(tmp_path / "stranger.pem")}):
            local_s3.apply(monkeypatch, **reached, **others)
            unknown = "an unknown CA; set AWS_CA"
            with pytest.raises(LakeError, match=unknown):
                Lake.at(local_s3.location).put(a_file(0, 9), b"rows")
        by_number = f"https://127.0.0.1:{proxy.port}"
        known = {"AWS_CA_BUNDLE": str(tmp_path / "authority.pem")}
        local_s3.apply(monkeypatch, **reached | {"AWS_ENDPOINT_URL": by_number} | known)
        with pytest.raises(LakeError, match=r"the certificate of 127\.0\.0\.1:.* is for another name"):
            Lake.at(local_s3.location).put(a_file(0, 9), b"rows")
        local_s3.apply(monkeypatch, **reached | {"AWS_ENDPOINT_URL": f"https://127.0.0.1:{local_s3.port}"})
        with pytest.raises(LakeError, match="does not use TLS"):
            Lake.at(local_s3.location).put(a_file(0, 9), b"rows")


def test_every_command_says_the_same_of_a_lake_in_a_folder_and_in_an_object_store(
    s3: S3, tmp_path: Path, run_fallow: RunFallow
) -> None:
    def fallow(*arguments: str) -> Any:
        done = run_fallow(*arguments, **s3.environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    folder, store = made_lake(tmp_path / "lake"), made_lake(s3.location)
    for lake in (folder, store):
        write_fleet(lake, SimulatedFleet(gpus=16, days=2, interval_ms=60_000, until_ms=20_777 * DAY_MS))
    for command in (["ledger", "--json"], ["findings", "--json"], ["report", "--format", "json"]):
        here, there = (fallow(*command, "--lake", lake.root) for lake in (folder, store))
        assert json.dumps(there).replace(store.root, folder.root) == json.dumps(here)
    kept = store.files("ledger")
    assert kept, "the ledger is kept in the store too"
    assert fallow("ledger", "--json", "--lake", store.root)
    assert store.files("ledger") == kept, "and read from there the next time"


def test_a_large_file_is_read_without_fetching_all_of_it(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake.at(s3.location)
    rows = [{"gpu": f"GPU-{number % 7}", "time": number * 1000, "gpu_util_pct": number % 100} for number in range(5000)]
    data = parquet.encode(schema.GPU, parquet.table_from_rows(schema.GPU, rows))
    file = lake.put(LakeFile("gpu", "1970-01-01", "h", 0, 4999), data)
    whole = parquet.read([file], schema.GPU, ["time", "gpu_util_pct"])
    monkeypatch.setattr(objects, "WHOLE_BYTES", 0)
    fetched: list[int] = []
    read = objects.read

    def counted(url: str, start: int = 0, end: int | None = None) -> bytes:
        found = read(url, start, end)
        fetched.append(len(found))
        return found

    monkeypatch.setattr(objects, "read", counted)
    assert parquet.read([file], schema.GPU, ["time", "gpu_util_pct"]).equals(whole)
    assert 0 < len(fetched) < 10
    assert lake.files("gpu") == [file]


def test_an_object_that_vanishes_or_is_damaged_is_named(s3: S3) -> None:
    lake = Lake.at(s3.location)
    file = lake.put(LakeFile("gpu", "1970-01-01", "h", 0, 9), b"no parquet at all")
    with pytest.raises(BrokenFileError, match=f"{file.url} is not a whole Parquet file"):
        parquet.read([file], schema.GPU)
    lake.delete(file)
    with pytest.raises(LakeError, match=f"{file.url} vanished while it was read"):
        parquet.read([file], schema.GPU)


def test_a_lake_that_is_not_there_is_said_as_of_a_folder(s3: S3, run_fallow: RunFallow) -> None:
    done = run_fallow("ledger", "--lake", s3.location, **s3.environment)
    assert done.returncode == 1
    assert done.stderr.startswith(f"fallow: there is no lake at {s3.location}; check the address")
