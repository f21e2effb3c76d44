"""A real one-node Ceph object gateway on loopback, from Debian's packages, in memory and in a folder of its own.

Needs radosgw, ceph-mon and ceph-osd, but no rights beyond its user's. It enforces bucket policies, which Swift lacks.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import hmac
import http.client
import json
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.publishing.swift import aws_environment, free_ports, wait_until_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_CONFIGURATION = """[global]
fsid={fsid}
mon host={address}
public addr=127.0.0.1
cluster addr=127.0.0.1
keyring={folder}/keyring
run dir={folder}
admin socket={folder}/$name.asok
log file={folder}/$name.log
pid file={folder}/$name.pid
crash dir={folder}
mon data={folder}/mon
osd data={folder}/osd
osd pool default size=1
osd pool default min size=1
mon allow pool size one=true
osd crush chooseleaf type=0
osd objectstore=memstore
memstore device bytes=1073741824
osd pool default pg num=8
osd pool default pgp num=8
osd pool default pg autoscale mode=off
ms bind ipv6=false
[osd]
keyring={folder}/osd/keyring
[client.admin]
rgw data={folder}
rgw frontends=beast endpoint=127.0.0.1:{port}
"""
_REGION = "us-east-1"
_STARTED_S = 120


def missing() -> str:
    """What has to be installed for a Ceph to run here; empty where everything is there."""
    if all(shutil.which(name) for name in ("radosgw", "ceph-mon", "ceph-osd")):
        return ""
    return "no Ceph here: apt-get install --no-install-recommends radosgw ceph-mon ceph-osd"


@dataclass(frozen=True)
class Ceph:
    """A gateway that runs; its users are called by their names."""

    folder: Path
    port: int

    def add_user(self, name: str) -> None:
        key, secret = self.keys(name)
        keys = ("--access-key", key, "--secret-key", secret)
        _run("radosgw-admin", *self._conf, "user", "create", "--uid", name, "--display-name", name, *keys)

    @staticmethod
    def keys(name: str) -> tuple[str, str]:
        return f"AK{name}", f"SK{name}-12345678"

    def environment(self, name: str) -> dict[str, str]:
        """What has a process use the store as that user."""
        key, secret = self.keys(name)
        return aws_environment(self.port, key, secret)

    def make_bucket(self, owner: str, bucket: str) -> None:
        self._put(owner, f"/{bucket}")

    def set_policy(self, owner: str, bucket: str, policy: Mapping[str, Any]) -> None:
        self._put(owner, f"/{bucket}", "policy=", json.dumps(policy).encode())

    def _put(self, user: str, path: str, query: str = "", body: bytes = b"") -> None:
        """A PUT signed as version 4 of Amazon's signatures says; the client for objects knows no buckets."""
        key, secret = self.keys(user)
        moment = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{moment[:8]}/{_REGION}/s3/aws4_request"
        signed = {"host": f"127.0.0.1:{self.port}", "x-amz-content-sha256": hashlib.sha256(body).hexdigest()}
        signed["x-amz-date"] = moment
        names = ";".join(signed)
        lines = [f"{name}:{value}" for name, value in signed.items()]
        request = "\n".join(["PUT", path, query, *lines, "", names, signed["x-amz-content-sha256"]])
        text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(request.encode()).hexdigest()])
        mac = f"AWS4{secret}".encode()
        for part in (*scope.split("/"), text):
            mac = hmac.new(mac, part.encode(), hashlib.sha256).digest()
        authorization = f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={mac.hex()}"
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            address = f"{path}?{query}" if query else path
            connection.request("PUT", address, body, {**signed, "Authorization": authorization})
            answer = connection.getresponse()
            if answer.status not in (200, 204):
                raise RuntimeError(answer.read().decode(errors="replace"))

    @property
    def _conf(self) -> Sequence[str]:
        return ("-c", f"{self.folder}/ceph.conf")


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Ceph]:
    """A Ceph that keeps everything in memory, and its files in the folder."""
    monitor, older, port = free_ports(3)
    address = f"[v2:127.0.0.1:{monitor},v1:127.0.0.1:{older}]"
    conf = ("-c", f"{folder}/ceph.conf")
    for name in ("mon", "osd"):
        (folder / name).mkdir()
    fsid = str(uuid.uuid4())
    (folder / "ceph.conf").write_text(_CONFIGURATION.format(fsid=fsid, address=address, folder=folder, port=port))
    secret = _make_keys(folder, address, fsid)
    with (folder / "out").open("wb") as out:
        daemons = [_daemon(("ceph-mon", *conf, "-f", "-i", "a", "--public-addr", "127.0.0.1"), out)]
        try:
            osd = str(uuid.uuid4())
            _run("ceph", *conf, "osd", "new", osd, "-i", "-", said=json.dumps({"cephx_secret": secret}))
            _run("ceph-authtool", "-C", f"{folder}/osd/keyring", "-n", "osd.0", "--add-key", secret)
            _run("ceph-osd", *conf, "-i", "0", "--mkfs", "--osd-uuid", osd)
            daemons.append(_daemon(("ceph-osd", *conf, "-f", "-i", "0"), out))
            daemons.append(_daemon(("radosgw", *conf, "-f", "-n", "client.admin"), out))
            wait_until_up(port, folder / "out", _STARTED_S)
            yield Ceph(folder, port)
        finally:
            for daemon in reversed(daemons):
                daemon.kill()
                daemon.wait()


def _make_keys(folder: Path, address: str, fsid: str) -> str:
    """The cluster's keys and its monitor's files; returns the secret of the disk that will be."""
    keyring, conf = str(folder / "keyring"), ("-c", f"{folder}/ceph.conf")
    rights = [word for kind in ("mon", "osd", "mgr", "mds") for word in ("--cap", kind, "allow *")]
    _run("ceph-authtool", "-C", keyring, "--gen-key", "-n", "client.admin", *rights)
    shutil.copy(keyring, folder / "monitors")
    _run("ceph-authtool", f"{folder}/monitors", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    _run("monmaptool", "--create", "--addv", "a", address, "--fsid", fsid, "--clobber", f"{folder}/monmap")
    keys = ("--monmap", f"{folder}/monmap", "--keyring", f"{folder}/monitors")
    _run("ceph-mon", *conf, "--mkfs", "-i", "a", *keys)
    return _run("ceph-authtool", "--gen-print-key").strip()


def _daemon(command: Sequence[str], out: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def _run(*command: str, said: str = "") -> str:
    return subprocess.run(command, input=said, capture_output=True, text=True, check=True, timeout=_STARTED_S).stdout
