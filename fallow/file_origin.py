"""Whether a file is of the host whose folder it lies in, by what its metadata says of its origin (fallow/host_identity.py).

A file that says nothing is taken as it is: an import's, another program's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fallow.errors import ForeignFileError
from fallow.host_claims import list_claims
from fallow.host_identity import HOST_KEY, INSTALL_KEY, listed
from fallow.lake import ALL_HOSTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fallow.lake import Lake, LakeFile


def check_host(file: LakeFile, metadata: Mapping[bytes, bytes]) -> None:
    """ForeignFileError where the file says that it is of another host than its folder."""
    said = metadata.get(HOST_KEY.encode())
    if said is not None and file.host != ALL_HOSTS and said != file.host.encode():
        raise ForeignFileError(
            f"{file.url} says that it is of the host {said.decode(errors='replace')[:80]}, and lies in the folder of {file.host}",
            "find out who put it there, and move it out of the lake",
        )


class Origins:
    """Which installations ever claimed each host's name, read once for each host."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._installs: dict[str, frozenset[str]] = {}

    def doubt(self, file: LakeFile, metadata: Mapping[str, str]) -> str:
        """What is odd about who wrote the file, as a sentence; empty: nothing. Raises LakeError."""
        strangers = [each for each in listed(metadata.get(INSTALL_KEY, "")) if each not in self._claimed(file.host)]
        if not strangers:
            return ""
        return (
            f"{file.url} was written by the installation {strangers[0][:40]}, which never claimed the host {file.host}; "
            "find out who put it there, and move it out of the lake unless it is right"
        )

    def _claimed(self, host: str) -> frozenset[str]:
        if host not in self._installs:
            self._installs[host] = frozenset(list_claims(self._lake.store, host))
        return self._installs[host]
