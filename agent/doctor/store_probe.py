"""`python -m agent.doctor.store_probe LOCATION HOST MACHINE`: a process that tries a lake with one tiny file.

A hard-mounted file server that is down blocks for ever, and an address that drops packets may block too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from urllib.parse import quote

from agent.doctor.host import exists
from agent.doctor.look import announce, write_answer
from fallow.errors import FallowError
from fallow.host_claims import HOLDS, read_claims
from fallow.lake_marker import read_marker
from fallow.stores import Store, open_store

FOLDER = "fallow-doctor"
"""The probe's file goes into a subfolder for this host. No table has this name, so no reader sees the file."""
_CONTENT = b"written and removed by `fallow doctor`\n"


def main() -> None:
    """Write each step and its result. The probe deletes its file even if it cannot read the file back."""
    location, host, machine = [*sys.argv[1:], "", ""][:3]
    try:
        store = open_store(location)
        write_answer(root=store.root)
        announce("look for the lake")
        if _local(store) and not store.exists():
            nearest = next(each for each in Path(store.root).parents if exists(each))
            write_answer(exists=False, nearest=str(nearest), writable=os.access(nearest, os.W_OK | os.X_OK))
        elif (marker := read_marker(store)) is None:
            write_answer(exists=True, lake_id="")
        else:
            write_answer(exists=True, lake_id=marker.id)
            _try(store, host or os.uname().nodename)
            # claims of other machines that hold this host's name now, and not those that wait or have stopped
            announce("look for other machines with this host's name")
            if host and machine:
                claims = [
                    each
                    for each in read_claims(store, host)
                    if each.state == HOLDS and each.machine not in ("", machine)
                ]
                claims.sort(key=lambda claim: claim.held_until_ms, reverse=True)
                write_answer(holders=[each.description() for each in claims])
    except FallowError as error:
        write_answer(failed={"message": error.message, "hint": error.hint})


def _try(store: Store, host: str) -> None:
    folder = f"{FOLDER}/host={quote(host, safe='')}"
    key = f"{folder}/{os.urandom(4).hex()}"
    announce("write")
    store.put(key, _CONTENT)
    try:
        announce("read back")
        store.confirm(key, _CONTENT)
        announce("list")
        write_answer(listed=[each.size_bytes for each in store.list(folder) if each.key == key] == [len(_CONTENT)])
    finally:
        announce("delete")
        try:
            store.delete(key)
            write_answer(deleted=True)
        except FallowError as error:
            write_answer(deleted=False, left=key, why=error.message)
        if _local(store):
            with contextlib.suppress(OSError):  # another doctor may use the folder
                Path(store.root, folder).rmdir()
                Path(store.root, FOLDER).rmdir()


def _local(store: Store) -> bool:
    return store.root.startswith("/")


if __name__ == "__main__":
    main()
