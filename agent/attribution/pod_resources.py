"""The GPUs of every container and pod, from the kubelet's pod-resources socket, API v1.

Field numbers are those of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto. The gRPC library would exceed the agent's
memory limit. So h2 speaks HTTP/2, and this module adds gRPC's five bytes before a message (grpc.io, "gRPC over HTTP2")
and the wire format of the answer (protobuf.dev, Encoding).
"""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import ProtocolError

from agent.attribution.proc import printable_text
from fallow.clock import seconds_left

if TYPE_CHECKING:
    from collections.abc import Iterator

_READ_BYTES = 65_536
_MOST_BYTES = 16 * 2**20
_EMPTY_MESSAGE = bytes(5)  # not compressed, length 0


class CallError(Exception):
    """The call failed, as the message describes."""


def call(socket_path: str, method: str, timeout_s: float) -> bytes:
    """Return the answer's message of a method with an empty request.

    Raises OSError where the socket is unusable, TimeoutError after the timeout, and CallError where the server refuses
    or breaks the protocol.
    """
    deadline_s = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(socket_path)
        try:
            return _Call(connection, deadline_s).run(method)
        except ProtocolError as error:
            raise CallError(f"it does not speak HTTP/2: {error}") from error


class _Call:
    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s
        self._http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._ended = False

    def run(self, method: str) -> bytes:
        self._http.initiate_connection()
        stream = self._http.get_next_available_stream_id()
        self._http.send_headers(
            stream,
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", method),
                (":authority", "localhost"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("user-agent", "fallow"),
            ],
        )
        self._http.send_data(stream, _EMPTY_MESSAGE, end_stream=True)
        while not self._ended:
            self._send()
            self._receive()
        return self._message()

    def _send(self) -> None:
        if waiting := self._http.data_to_send():
            self._connection.settimeout(seconds_left(self._deadline_s))
            self._connection.sendall(waiting)

    def _receive(self) -> None:
        self._connection.settimeout(seconds_left(self._deadline_s))
        received = self._connection.recv(_READ_BYTES)
        if not received:
            raise CallError("it closed the connection before the answer was complete")
        for event in self._http.receive_data(received):
            if isinstance(event, ResponseReceived | TrailersReceived):
                self._headers.update((str(name), str(value)) for name, value in event.headers or ())
            elif isinstance(event, DataReceived):
                self._body += event.data or b""
                if len(self._body) > _MOST_BYTES:
                    raise CallError(f"its answer is longer than {_MOST_BYTES} bytes")
                if event.stream_id is not None and event.flow_controlled_length:
                    self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamReset | ConnectionTerminated):
                raise CallError(f"it broke off with HTTP/2 error {event.error_code}")
            elif isinstance(event, StreamEnded):
                self._ended = True

    def _message(self) -> bytes:
        status = self._headers.get(":status")
        if status != "200":
            raise CallError(f"it answered with HTTP status {status}")
        code = self._headers.get("grpc-status")
        if code != "0":
            raise CallError(
                f"it answered with gRPC status {code}: {unquote(self._headers.get('grpc-message', ''))[:200]}"
            )
        if len(self._body) < 5 or self._body[0] or len(self._body) != 5 + int.from_bytes(self._body[1:5], "big"):
            raise CallError("its answer is not a single uncompressed message")
        return bytes(self._body[5:])


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are not a protobuf message."""


def submessages(message: bytes, number: int) -> Iterator[bytes]:
    """Yield the contents of every length-delimited field with this number, in order: messages, strings or bytes."""
    for field, content in _fields(message):
        if field == number and content is not None:
            yield content


def text(message: bytes, number: int) -> str:
    """Return the last string field with this number; empty where there is none. Raises WireError."""
    found = b""
    for found in submessages(message, number):  # noqa: B007  # the last value counts
        pass
    return _decoded(found)


def texts(message: bytes, number: int) -> list[str]:
    """Return the repeated string field with this number. Raises WireError."""
    return [_decoded(content) for content in submessages(message, number)]


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise WireError("a string is not UTF-8") from None


def _fields(message: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and content of each field; the content is None for skipped types."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind, content = key & 7, None
        if kind == _VARINT:
            _, at = _varint(message, at)
        elif kind == _BYTES:
            length, at = _varint(message, at)
            content, at = message[at : at + length], at + length
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise WireError(f"there is no field type {kind}")
        if at > len(message):
            raise WireError("it ends in the middle of a field")
        yield key >> 3, content


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70 and at < len(message):
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise WireError("a number does not end")


METHOD = "/v1.PodResourcesLister/List"

_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]+")
_MINOR = re.compile(r"nvidia(\d+)(?:/vgpu\d+)?")  # GKE's own device plugin
_DRA_DRIVER = "gpu.nvidia.com"
_DRA_MINOR = re.compile(r"gpu-(\d+)")


@dataclass(frozen=True, order=True)
class PodContainer:
    namespace: str
    pod: str
    container: str


def parse_list(message: bytes, minors: dict[int, str]) -> dict[str, list[PodContainer]]:
    """Return containers by the UUID of their GPU or MIG instance. `minors` has the UUIDs by minor number.

    Raises WireError where the bytes are not a ListPodResourcesResponse.
    """
    by_uuid: dict[str, set[PodContainer]] = {}
    for pod in submessages(message, 1):
        name, namespace = printable_text(text(pod, 1)), printable_text(text(pod, 2))
        for container in submessages(pod, 3):
            owner = PodContainer(namespace, name, printable_text(text(container, 1)))
            for uuid in _devices(container, minors):
                by_uuid.setdefault(uuid, set()).add(owner)
    return {uuid: sorted(found) for uuid, found in sorted(by_uuid.items())}


def _devices(container: bytes, minors: dict[int, str]) -> set[str]:
    """Return the GPUs that a device plugin or a driver of dynamic resource allocation assigned to a container."""
    found = set()
    for devices in submessages(container, 2):
        found |= {device_uuid(name, minors) for name in texts(devices, 2)}
    for allocation in submessages(container, 5):
        for resource in submessages(allocation, 4):
            found |= {device_uuid(text(device, 1).partition("=")[2], minors) for device in submessages(resource, 1)}
            minor = _DRA_MINOR.fullmatch(text(resource, 4)) if text(resource, 2) == _DRA_DRIVER else None
            found.add(minors.get(int(minor[1])) if minor else None)
    return {uuid for uuid in found if uuid is not None}


def device_uuid(name: str, minors: dict[int, str]) -> str | None:
    """Return the UUID for a device id; None where it is not a GPU, or the id does not identify the GPU.

    `GPU-...` and `MIG-...` are UUIDs. Time slices append `::` and a number. GKE's ids name the device node.
    """
    plain = name.partition("::")[0]
    if _UUID.fullmatch(plain):
        return plain
    minor = _MINOR.fullmatch(plain)
    return minors.get(int(minor[1])) if minor else None


def read_minors(proc: str) -> dict[int, str]:
    """Return the UUIDs of whole GPUs by the number of their device node, from the kernel driver's files in /proc."""
    minors = {}
    for path in Path(proc, "driver/nvidia/gpus").glob("*/information"):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        entry = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        uuid, minor = entry.get("GPU UUID", ""), entry.get("Device Minor", "")
        if _UUID.fullmatch(uuid) and minor.isdecimal():  # a GPU that no program has opened yet shows `?` as its UUID
            minors[int(minor)] = uuid
    return minors
