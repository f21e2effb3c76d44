"""Real peers for attribution: a kubelet's two faces, and processes with a known environment."""

from __future__ import annotations

import contextlib
import json
import shutil
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import grpc
import trustme
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from agent.attribution import AttributionSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent.attribution import ProcessOwners

_STRING, _INT64, _MESSAGE = 9, 3, 11
_ONE, _MANY = 1, 3

# the parts of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto that matter, and some that have to be skipped
_MESSAGES: dict[str, list[tuple[str, int, int, int, str]]] = {
    "ListPodResourcesRequest": [],
    "ListPodResourcesResponse": [("pod_resources", 1, _MANY, _MESSAGE, "PodResources")],
    "PodResources": [
        ("name", 1, _ONE, _STRING, ""), ("namespace", 2, _ONE, _STRING, ""),
        ("containers", 3, _MANY, _MESSAGE, "ContainerResources"),
    ],
    "ContainerResources": [
        ("name", 1, _ONE, _STRING, ""), ("devices", 2, _MANY, _MESSAGE, "ContainerDevices"),
        ("cpu_ids", 3, _MANY, _INT64, ""), ("dynamic_resources", 5, _MANY, _MESSAGE, "DynamicResource"),
    ],
    "ContainerDevices": [
        ("resource_name", 1, _ONE, _STRING, ""), ("device_ids", 2, _MANY, _STRING, ""),
        ("topology", 3, _ONE, _MESSAGE, "TopologyInfo"),
    ],
    "TopologyInfo": [("nodes", 1, _MANY, _MESSAGE, "NUMANode")],
    "NUMANode": [("ID", 1, _ONE, _INT64, "")],
    "DynamicResource": [
        ("claim_name", 2, _ONE, _STRING, ""), ("claim_namespace", 3, _ONE, _STRING, ""),
        ("claim_resources", 4, _MANY, _MESSAGE, "ClaimResource"),
    ],
    "ClaimResource": [
        ("cdi_devices", 1, _MANY, _MESSAGE, "CDIDevice"), ("driver_name", 2, _ONE, _STRING, ""),
        ("pool_name", 3, _ONE, _STRING, ""), ("device_name", 4, _ONE, _STRING, ""),
    ],
    "CDIDevice": [("name", 1, _ONE, _STRING, "")],
}  # fmt: skip


def _message_types() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package="v1", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, label, kind, of in fields:
            message.field.add(
                name=field_name, number=number, label=label, type=kind, type_name=f".v1.{of}" if of else None
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}")) for name in _MESSAGES}


MESSAGES = _message_types()


def pod_list(*pods: dict[str, Any]) -> Any:
    """A ListPodResourcesResponse out of nested dicts."""
    return MESSAGES["ListPodResourcesResponse"](pod_resources=pods)


def gpu_pod(name: str, *gpus: str, namespace: str = "ml", container: str = "main") -> dict[str, Any]:
    """A pod that was given GPUs by a device plugin."""
    devices = [{"resource_name": "nvidia.com/gpu", "device_ids": gpus, "topology": {"nodes": [{"ID": 1}]}}]
    return {
        "name": name,
        "namespace": namespace,
        "containers": [{"name": container, "devices": devices, "cpu_ids": [1, 300]}],
    }


@contextlib.contextmanager
def pod_resources_server(path: Path, answer: Callable[[Any], Any]) -> Iterator[None]:
    """A real gRPC server on a unix socket; the answer gets the call's context, to refuse with."""
    handler = grpc.unary_unary_rpc_method_handler(
        lambda _request, context: answer(context),
        request_deserializer=MESSAGES["ListPodResourcesRequest"].FromString,
        response_serializer=MESSAGES["ListPodResourcesResponse"].SerializeToString,
    )
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),)
        )
        server.add_insecure_port(f"unix:{path}")
        server.start()
        try:
            yield
        finally:
            server.stop(None).wait(10)


@dataclass
class PodsEndpoint:
    """What the kubelet's own address serves, and what it was asked."""

    url: str
    ca_file: Path
    token_file: Path
    pods: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    body: bytes | None = None
    asked: list[str] = field(default_factory=list)


def told(endpoint: PodsEndpoint, **values: str) -> AttributionSettings:
    """Settings with the kubelet's own address."""
    known = {"kubelet_token_file": str(endpoint.token_file), "kubelet_ca_file": str(endpoint.ca_file)}
    return AttributionSettings(kubelet_url=endpoint.url, scontrol="", **{**known, **values})


BEARER = "kubelet.token-0123456789"


@contextlib.contextmanager
def pods_server(folder: Path, name: str = "localhost") -> Iterator[PodsEndpoint]:
    """A real HTTPS server that asks for the token, with a certificate for this name."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    (folder / "token").write_text(f"{BEARER}\n", encoding="ascii")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            endpoint.asked.append(self.path)
            allowed = self.headers.get("Authorization") == f"Bearer {BEARER}" and self.path == "/pods"
            body = (
                endpoint.body
                if endpoint.body is not None
                else json.dumps({"kind": "PodList", "items": endpoint.pods}).encode()
            )
            self.send_response(endpoint.status if allowed else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(HTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that does not trust the certificate hangs up: that is what is tested."""

    server = Quiet(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    endpoint = PodsEndpoint(f"https://localhost:{server.server_port}", folder / "ca.pem", folder / "token")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def api_pod(name: str, uid: str, containers: dict[str, str], **labels: str) -> dict[str, Any]:
    """A pod as the kubelet's API shows it, containers by id."""
    statuses = [{"name": container, "containerID": container_id} for container_id, container in containers.items()]
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": uid, "labels": labels},
        "spec": {"containers": []},
        "status": {"phase": "Running", "containerStatuses": [*statuses, {"name": "starting", "containerID": ""}]},
    }


GPU = "GPU-6f8d1c2e-0a1b-4c3d-9e5f-112233445566"
NOW = 1_795_000_000_000


def entry(pid: int, gpu: str = GPU) -> dict[str, Any]:
    """A process as the NVML worker lists it."""
    return {"gpu": gpu, "pid": pid, "kind": "compute", "mem_used_bytes": 5, "time": NOW}


def described(owners: ProcessOwners, pid: int, now_ms: int = NOW) -> dict[str, Any]:
    """The row of one process, after everything asked in the background has come."""
    owners.describe([entry(pid)], now_ms)
    owners.wait(20)
    (row,) = owners.describe([entry(pid)], now_ms)
    return row


_BETWEEN = "1 1 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0 1 1 1"
"""The fields of /proc/PID/stat that nobody reads, 26 to 47."""


@dataclass(frozen=True)
class FakeProc:
    """A folder like /proc, for processes that cannot be had on a test machine."""

    folder: Path
    btime: int = 1_794_990_000

    def __post_init__(self) -> None:
        (self.folder / "self/ns").mkdir(parents=True)
        (self.folder / "self/status").write_text("Name:\tx\nPid:\t99\nNSpid:\t99\n", encoding="ascii")
        (self.folder / "self/ns/pid").symlink_to("pid:[4026531836]")
        (self.folder / "stat").write_text(f"cpu  1 2 3\nctxt 5\nbtime {self.btime}\nprocesses 9\n", encoding="ascii")

    def add(
        self, pid: int, *, command: bytes = b"python", start_ticks: int = 1000, cpu_ticks: int = 0, user_id: int = 0,
        cgroup: str = "0::/\n", environ: bytes = b"", cmdline: bytes = b"", texts: str = "0 0 0 0",
    ) -> None:  # fmt: skip
        """A process, or the same one as it is a while later; `texts` is where its arguments and environment lie."""
        folder = self.folder / str(pid)
        folder.mkdir(exist_ok=True)
        numbers = (
            f"S 1 1 1 0 -1 4194304 100 0 0 0 {cpu_ticks} 0 0 0 20 0 1 0 {start_ticks} 9000000 256 18446744073709551615"
        )
        (folder / "stat").write_bytes(b"%d (%s) %s\n" % (pid, command, f"{numbers} {_BETWEEN} {texts} 0\n".encode()))
        (folder / "status").write_text(f"Name:\tx\nUid:\t{user_id}\t0\t0\t0\nNSpid:\t{pid}\n", encoding="ascii")
        (folder / "cgroup").write_text(cgroup, encoding="utf-8")
        (folder / "environ").write_bytes(environ)
        (folder / "cmdline").write_bytes(cmdline)

    def remove(self, pid: int) -> None:
        """The process has ended."""
        shutil.rmtree(self.folder / str(pid))
