"""The body of an OTLP/HTTP request: of known length or in chunks, plain or gzip, and never larger than allowed."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol, overload

_GZIP = 16 + zlib.MAX_WBITS
_LONGEST_LINE = 1024
_LONGEST_LENGTH = 16
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(;.*)?\r?\n", re.DOTALL)
PATIENCE_S = 30.0
_MOST_TRAILERS = 16


class Headers(Protocol):
    @overload
    def get(self, name: str, /) -> str | None: ...
    @overload
    def get(self, name: str, default: str, /) -> str: ...


class ByteStream(Protocol):
    def read1(self, size: int, /) -> bytes: ...


class RefusedRequestError(Exception):
    """A request that is not taken: the status and why; `retry_after_s` where the sender should come again."""

    def __init__(self, status: HTTPStatus, why: str, retry_after_s: int | None = None) -> None:
        super().__init__(why)
        self.status, self.why, self.retry_after_s = status, why, retry_after_s


def read_body(
    stream: ByteStream, headers: Headers, most_bytes: int, monotonic_s: Callable[[], float] = time.monotonic
) -> bytes:
    """The body, unpacked. Raises RefusedRequestError, and OSError where the sender is gone."""
    body = _Body(stream, most_bytes, monotonic_s)
    if (coding := headers.get("Transfer-Encoding")) is not None:
        if coding.lower() != "chunked" or headers.get("Content-Length") is not None:
            # RFC 9112, section 6.1: a proxy in front may see another end of the body
            why = "Transfer-Encoding has to be chunked, without a Content-Length beside it"
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, why)
        found = body.of_chunks()
    else:
        found = body.of_length(headers.get("Content-Length", ""))
    encoding = headers.get("Content-Encoding", "identity").lower()
    if encoding == "gzip":
        return _unpacked(found, most_bytes)
    if encoding != "identity":
        raise RefusedRequestError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the encoding {encoding} is not known; use gzip or none"
        )
    return found


class _Body:
    """Reads from the stream what belongs to the body, for PATIENCE_S at most: a sender that trickles keeps others out."""

    def __init__(self, stream: ByteStream, most_bytes: int, monotonic_s: Callable[[], float]) -> None:
        self._stream, self._most_bytes, self._monotonic_s = stream, most_bytes, monotonic_s
        self._deadline_s = monotonic_s() + PATIENCE_S

    def of_length(self, length: str) -> bytes:
        if not (length.isascii() and length.isdecimal()):
            raise RefusedRequestError(HTTPStatus.LENGTH_REQUIRED, "the request names no length, and is not chunked")
        if len(length) > _LONGEST_LENGTH or int(length) > self._most_bytes:
            raise _too_large(self._most_bytes)
        return self._exactly(int(length))

    def of_chunks(self) -> bytes:
        found = bytearray()
        while size := _chunk_size(self._line()):
            if len(found) + size > self._most_bytes:
                raise _too_large(self._most_bytes)
            found += self._exactly(size)
            self._exactly(2)  # the line's end
        for _ in range(_MOST_TRAILERS):
            if not self._line().strip():
                break
        return bytes(found)

    def _line(self) -> bytes:
        """Byte for byte: whoever waits for the whole line waits as long as the sender likes."""
        found = b""
        while not found.endswith(b"\n") and len(found) < _LONGEST_LINE:
            found += self._exactly(1)
        return found

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self._stream.read1(size - len(found))
            if not piece:
                raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "the body ends before its length")
            found += piece
            if self._monotonic_s() > self._deadline_s:
                raise RefusedRequestError(HTTPStatus.REQUEST_TIMEOUT, f"the body took longer than {PATIENCE_S:.0f} s")
        return bytes(found)


def _chunk_size(line: bytes) -> int:
    if (found := _CHUNK_SIZE.fullmatch(line)) is None:
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "a chunk of the body has no length")
    return int(found[1], 16)


def _unpacked(body: bytes, most_bytes: int) -> bytes:
    unpacking = zlib.decompressobj(_GZIP)
    try:
        found = unpacking.decompress(body, most_bytes + 1)
    except zlib.error as error:
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "the body is not gzip") from error
    if len(found) > most_bytes:
        raise _too_large(most_bytes)
    if not unpacking.eof:
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, "the gzip body ends too early")
    return found


def _too_large(most_bytes: int) -> RefusedRequestError:
    return RefusedRequestError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body is larger than otlp.max_body, {most_bytes} bytes; send smaller batches",
    )
