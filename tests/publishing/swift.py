"""A real OpenStack Swift with its S3 API on loopback, from Debian's packages, in a folder of its own.

Needs swift-proxy, swift-account, swift-container, swift-object and memcached; no rights beyond those of its user.
Swift is one of the stores that knows neither a conditional PUT nor a rename.
"""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY_ID = "test:tester"
SECRET = "swift-secret-of-the-tests"  # noqa: S105  # known to everybody, of a store that ends with the tests
_SERVERS = ("account", "container", "object", "proxy")

# both run under the Python that Debian installs Swift for
_RINGS = """
import sys
from swift.common.ring import RingBuilder
for kind, port in zip(("account", "container", "object"), sys.argv[2:]):
    builder = RingBuilder(4, 1, 1)
    builder.add_dev({"region": 1, "zone": 1, "ip": "127.0.0.1", "port": int(port), "device": "disk", "weight": 1})
    builder.rebalance()
    builder.get_ring().save(f"{sys.argv[1]}/{kind}.ring.gz")
"""
_SERVE = """
import sys
from swift.common import utils
utils.set_swift_dir(sys.argv[1])
from swift.common.storage_policy import reload_storage_policies
reload_storage_policies()
from swift.common.wsgi import run_wsgi
sys.exit(run_wsgi(f"{sys.argv[1]}/{sys.argv[2]}.conf", f"{sys.argv[2]}-server"))
"""

_COMMON = """[swift-hash]
swift_hash_path_suffix = fallow
swift_hash_path_prefix = fallow
[storage-policy:0]
name = only
default = yes
"""
_STORAGE = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
fallocate_reserve = 0
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
_PROXY = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
[pipeline:main]
pipeline = catch_errors cache listing_formats bulk s3api tempauth slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
# on a busy machine its servers are slow, not away: Swift asks nobody for a minute whom it has given up ten times
conn_timeout = 10
node_timeout = 60
recoverable_node_timeout = 60
error_suppression_limit = 100000
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memcached}
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:bulk]
use = egg:swift#bulk
[filter:s3api]
use = egg:swift#s3api
s3_acl = no
location = us-east-1
allowable_clock_skew = {skew_s}
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = {secret} .admin
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""


def aws_environment(port: int, key: str = KEY_ID, secret: str = SECRET) -> dict[str, str]:
    """What has a process use a store on loopback as that user."""
    keys = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1"}
    return keys | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true"}


def missing() -> str:
    """What has to be installed for a Swift to run here; empty where everything is there."""
    if all(shutil.which(name) for name in ("swift-proxy-server", "swift-object-server", "memcached")):
        return ""
    return "no Swift here: apt-get install swift-proxy swift-account swift-container swift-object memcached"


@contextmanager
def running(folder: Path, skew_s: int = 900) -> Iterator[int]:
    """A Swift that keeps all in the folder; yields its S3 port; refuses requests more than `skew_s` off in time."""
    python = Path(str(shutil.which("swift-proxy-server"))).read_text().partition("\n")[0].removeprefix("#!").split()[0]
    ports = free_ports(len(_SERVERS) + 1)
    _configure(folder, ports, skew_s)
    subprocess.run([python, "-c", _RINGS, folder, *map(str, ports[:3])], check=True, timeout=60)
    memcached = ["memcached", "-u", getpass.getuser(), "-l", "127.0.0.1", "-p", str(ports[-1]), "-m", "16"]
    with (folder / "log").open("wb") as log:
        commands = [memcached, *([python, "-c", _SERVE, str(folder), kind] for kind in _SERVERS)]
        processes = [subprocess.Popen(command, stdout=log, stderr=log) for command in commands]
        try:
            for port in ports[:4]:
                wait_until_up(port, folder / "log")
            yield ports[3]
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()


def _configure(folder: Path, ports: list[int], skew_s: int) -> None:
    (folder / "devices" / "disk").mkdir(parents=True)
    (folder / "swift.conf").write_text(_COMMON)
    for kind, port in zip(_SERVERS, ports, strict=False):
        text = _PROXY if kind == "proxy" else _STORAGE
        given = {"kind": kind, "port": port, "folder": folder, "user": getpass.getuser()}
        text = text.format(**given, memcached=ports[-1], secret=SECRET, skew_s=skew_s)
        (folder / f"{kind}.conf").write_text(text)


def free_ports(count: int) -> list[int]:
    """Ports that are free now: the servers write them down before they listen."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_until_up(port: int, log: Path, within_s: float = 60) -> None:
    """Returns once something listens on the port; raises TimeoutError with the end of the log."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            if time.monotonic() > deadline:
                raise TimeoutError(log.read_text(errors="replace")[-2000:]) from None
            time.sleep(0.05)
        else:
            return
