"""The bytes of a file, gzip undone as a stream: never more than one file may hold."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import BinaryIO

from analytics.importers.limits import InputLimits
from fallow.errors import InputError

_GZIP = b"\x1f\x8b"
_PIECE = 1 << 16
"""Small, for what follows a gzip member in its piece is copied for the next."""


def unpacked(path: str, head: bytes, file: BinaryIO, limits: InputLimits) -> tuple[bytes, bool]:
    """What is in the file, whose first bytes have been read, and whether a gzip stream ends too early.

    Raises InputError for a damaged one and for more than a file may hold, and OSError.
    """
    pieces = chain([head], iter(partial(file.read, _PIECE), b""))
    if head.startswith(_GZIP):
        return _gunzip(path, pieces, limits)
    return b"".join(_bounded(path, pieces, limits)), False


def _bounded(path: str, pieces: Iterable[bytes], limits: InputLimits) -> Iterator[bytes]:
    """The pieces; InputError as soon as there are more bytes than one file may hold."""
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > limits.max_bytes:
            raise limits.too_large(path)
        yield piece


def _gunzip(path: str, pieces: Iterable[bytes], limits: InputLimits) -> tuple[bytes, bool]:
    """The unpacked bytes of all members and whether the last one ends too early."""
    unpacker = _Unpacker()
    try:
        # the packed bytes are bounded as well: any number of members may be empty
        data = b"".join(_bounded(path, unpacker.unpacked(_bounded(path, pieces, limits)), limits))
    except zlib.error as error:
        raise InputError(f"{path} is a damaged gzip file ({error})", "fetch it again") from error
    return data, not unpacker.is_whole


class _Unpacker:
    """Gzip as a stream: never more than a piece of it is unpacked ahead of who reads."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    @property
    def is_whole(self) -> bool:
        return self._member.eof

    def unpacked(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """What is in the members, piece by piece; NUL bytes behind one are padding, and anything else ends the stream."""
        for piece in pieces:
            rest = piece
            while rest:
                if self._member.eof:
                    rest = rest.lstrip(b"\x00")
                    if not rest.startswith(_GZIP[:1]):
                        break
                    self._member = zlib.decompressobj(wbits=31)
                yield self._member.decompress(rest, _PIECE)
                rest = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        if not self._member.eof:
            yield self._member.flush(_PIECE)
