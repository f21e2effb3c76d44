"""Parquet files as they are opened: regular ones within the limits, of a version that this fallow knows, and whole.

Imports pyarrow: the resident agent processes never import this module.
"""

from __future__ import annotations

import errno
import io
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq

from fallow.errors import (
    BrokenFileError,
    IrregularFileError,
    LakeError,
    OversizedFileError,
    UnreadableFileError,
    VanishedFileError,
)
from fallow.file_limits import MOST_BYTES, MOST_FOOTER_BYTES, contradiction_of, excess_of
from fallow.file_origin import check_host
from fallow.os_user import effective_user
from fallow.parquet_writer import CHECKSUM_KEY, VERSION_KEY, check_version
from fallow.stores.model import WHOLE_BYTES
from fallow.stores.regular_files import NotRegularError, open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fallow.lake import LakeFile

_Read = TypeVar("_Read")

_MAGIC = b"PAR1"
_TAIL_BYTES = 4 + len(_MAGIC)
"""What ends a file: the length of the footer before it, and the magic bytes."""

_REQUESTS = 8
"""Files of an object store that are fetched at a time: each at most a few MB in memory before it is decoded."""

UNREADABLE = (pa.ArrowException, OSError, ValueError)
"""What pyarrow raises for damaged files (a footer of noise may be a UnicodeDecodeError) and foreign column types."""


def small_contents(files: Iterable[LakeFile]) -> list[bytes | None]:
    """The bytes of each file that is small enough to be held whole; None for one that is not, or cannot be read as it is.

    Raises LakeError where an object store does not answer.
    """
    return each(files, _content)


def _content(file: LakeFile) -> bytes | None:
    if file.size_bytes > WHOLE_BYTES:
        return None
    try:
        if not _is_object(file):
            return read_regular(file.url, _root_of(file), WHOLE_BYTES)
        from fallow.stores.objects import read as read_object  # a lake in a folder never pays for it

        return read_object(file.url)
    except OSError:
        return None


def each(files: Iterable[LakeFile], read_one: Callable[[LakeFile], _Read]) -> list[_Read]:
    """What each file gives, in order; several requests at a time to an object store, whose answers take long to begin."""
    wanted = list(files)
    if not any(_is_object(file) for file in wanted):
        return [read_one(file) for file in wanted]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return list(pool.map(read_one, wanted))


def open_file(file: LakeFile, *, whole: bool = False) -> pq.ParquetFile:
    """The file, checked to be a regular one within the limits and of a schema version that this fallow knows.

    With `whole`, all of it is read, and compared with its checksum where it has one. Texts, and whatever else has no
    width of its own, are read as dictionaries, in which one that repeats is there once. Raises UnusableFileError,
    SchemaVersionError and VanishedFileError.
    """
    if file.size_bytes > MOST_BYTES:
        raise oversized(file, f"{file.size_bytes} bytes, at most {MOST_BYTES}")
    try:
        source = _source(file)
        if isinstance(source, io.FileIO):  # another file may have taken the name since it was listed
            whole = whole and os.fstat(source.fileno()).st_size <= WHOLE_BYTES
        if whole:
            content = source.read()
            facts, readable = check(file, content), pa.BufferReader(content)
        else:
            facts, readable = _checked(file, source, _tail(source)), source
        columns = [facts.schema.column(number) for number in range(facts.num_columns)]
        texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
        opened = pq.ParquetFile(readable, metadata=facts, read_dictionary=texts)
        names = opened.schema_arrow.names
    except UNREADABLE as error:
        raise unusable(file, error) from error
    if len({*names}) < len(names):
        raise broken(file, ValueError("two columns have one name"))
    return opened


def check(file: LakeFile, content: bytes) -> pq.FileMetaData:
    """The footer of a file that is held whole; raises what `open_file` raises, and nothing for two columns of one name."""
    facts = _checked(file, pa.BufferReader(content), content[-_TAIL_BYTES:])
    _check_sum(file, content, (facts.metadata or {}).get(CHECKSUM_KEY.encode()))
    return facts


def _checked(file: LakeFile, readable: BinaryIO | pa.BufferReader, tail: bytes) -> pq.FileMetaData:
    """The footer, by which nothing is decoded before it is within the limits and does not contradict itself."""
    _check_footer_size(file, tail)
    try:
        facts = pq.ParquetFile(readable).metadata
        said = facts.metadata or {}
        check_host(file, said)
        check_version(file.url, said[key].decode() if (key := VERSION_KEY.encode()) in said else None)
        if contradiction := contradiction_of(facts):
            raise broken(file, ValueError(contradiction))
        if excess := excess_of(facts, all_hosts=not file.host):
            raise oversized(file, excess)
    except UNREADABLE as error:
        raise unusable(file, error) from error
    return facts


def _tail(source: BinaryIO) -> bytes:
    """The last bytes of a file that is at hand; nothing of a large object, of which every piece is a request."""
    if not isinstance(source, io.BytesIO | io.FileIO) or source.seek(0, io.SEEK_END) < _TAIL_BYTES:
        return b""
    source.seek(-_TAIL_BYTES, io.SEEK_END)
    tail = source.read(_TAIL_BYTES)
    source.seek(0)
    return tail


def _check_footer_size(file: LakeFile, tail: bytes) -> None:
    footer_bytes = int.from_bytes(tail[:4], "little")
    if tail.endswith(_MAGIC) and MOST_FOOTER_BYTES < footer_bytes < file.size_bytes:
        raise oversized(file, f"{footer_bytes} bytes of footer, at most {MOST_FOOTER_BYTES}")


def _check_sum(file: LakeFile, content: bytes, stated: bytes | None) -> None:
    if stated is None:  # another writer's
        return
    footer_bytes = _TAIL_BYTES + int.from_bytes(content[-_TAIL_BYTES : -len(_MAGIC)], "little")
    try:
        is_same = int(stated) == zlib.crc32(memoryview(content)[:-footer_bytes])
    except ValueError as error:
        raise broken(file, error) from error
    if not is_same:
        raise broken(file, ValueError("its content does not match its checksum"))


def _is_object(file: LakeFile) -> bool:
    return "://" in file.url


def _root_of(file: LakeFile) -> str:
    """The root of the lake that a file in a folder lies in."""
    return file.url.rsplit("/", 4 if file.host else 3)[0]


def _source(file: LakeFile) -> BinaryIO:
    """What pyarrow reads from: an open file, or the content of an object, which is fetched through the store."""
    if not _is_object(file):
        return open_regular(file.url, _root_of(file))
    from fallow.stores.objects import open_object  # a lake in a folder never pays for it

    return cast("BinaryIO", open_object(file.url, file.size_bytes))


def metadata(file: LakeFile) -> dict[str, str]:
    """The file's key-value metadata; raises as `open_file` does."""
    found = open_file(file).schema_arrow.metadata or {}
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in found.items()
        if not key.startswith(b"ARROW")
    }


_OUT_OF_MEANS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What a process lacks: no fault of the file."""


def unusable(file: LakeFile, error: Exception) -> LakeError:
    """The error for a file that could not be opened or decoded; those without a number are pyarrow's own."""
    if isinstance(error, NotRegularError):
        return IrregularFileError(f"{file.url} is no regular file: {error}", "move it out of the lake")
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, FileNotFoundError | NotADirectoryError) or number == errno.ESTALE:
        return VanishedFileError(f"{file.url} vanished while it was read", "run the command again")
    if isinstance(error, PermissionError):
        return UnreadableFileError(
            f"the user {effective_user()} may not read {file.url}",
            "give that user permission to read it and its folders",
        )
    if number is None:
        return broken(file, error)
    what = f"cannot read {file.url}: {os.strerror(number)}"
    if number in _OUT_OF_MEANS:
        return LakeError(what, "let this process open more files, or have more memory")
    return UnreadableFileError(what, "check the disk or the mount that it is on")


def oversized(file: LakeFile, excess: str) -> OversizedFileError:
    return OversizedFileError(f"{file.url} is larger than any file of a lake: {excess}", "move it out of the lake")


def broken(file: LakeFile, error: Exception) -> BrokenFileError:
    reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    return BrokenFileError(
        f"{file.url} is not a whole Parquet file ({reason})",
        "move it out of the lake (the agent's spool or the importer writes it again if it still has the rows)",
    )
