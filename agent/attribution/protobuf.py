"""As much of protobuf's wire format as a reader of a few known fields needs (protobuf.dev, Encoding)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are no protobuf message."""


def submessages(message: bytes, number: int) -> Iterator[bytes]:
    """The contents of every length-delimited field of this number, in order: messages, strings or bytes."""
    for field, content in _fields(message):
        if field == number and content is not None:
            yield content


def text(message: bytes, number: int) -> str:
    """The string field of this number, the last one counts; empty where it is not there. Raises WireError."""
    found = b""
    for found in submessages(message, number):  # noqa: B007  # the last one is wanted
        pass
    return _decoded(found)


def texts(message: bytes, number: int) -> list[str]:
    """The repeated string field of this number. Raises WireError."""
    return [_decoded(content) for content in submessages(message, number)]


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise WireError("a string is not UTF-8") from None


def _fields(message: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Number and content of each field; the content is None for types that are skipped."""
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
