"""`python -m agent.doctor.store_probe LOCATION HOST MACHINE`: tries a lake with one tiny file; a process of its own.

A hard-mounted file server that is down blocks for ever, and so may an address that drops packets.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from urllib.parse import quote

from agent.doctor.host import exists
from agent.doctor.look import announce, tr
from fallow.errors import FallowError
from fallow.host_claims import HOLDS, read_claims
from fallow.lake_marker import read_marker
from fallow.stores import Store, open_store

FOLDER = "fallow-doctor"
"""Where the probe's file goes, below it in a folder of this host's: no table has this name, so that no reader ever sees it."""
_CONTENT = b"written and removed by `fallow doctor`\n"


def main() -> None:
    """`LOCATION HOST MACHINE`: says how far it came; the file is removed also where it could not be found again."""
    location, host, machine = [*sys.argv[1:], "", ""][:3]
    try:
        store = open_store(location)
        tr(root=store.root)
        announce("look whether it is there")
        if _local(store) and not store.exists():
            nearest = next(each for each in Path(store.root).parents if exists(each))
            tr(exists=False, nearest=str(nearest), writable=os.access(nearest, os.W_OK | os.X_OK))
        elif (marker := read_marker(store)) is None:
            tr(exists=True, lake_id="")
        else:
            tr(exists=True, lake_id=marker.id)
            _try(store, host or os.uname().nodename)
            # who holds this host's name on another machine; one that only waits, or has stopped, does not
            announce("look who has this host's name")
            if host and machine:
                claims = [
                    each
                    for each in read_claims(store, host)
                    if each.state == HOLDS and each.machine not in ("", machine)
                ]
                claims.sort(key=lambda claim: claim.held_until_ms, reverse=True)
                tr(holders=[each.said() for each in claims])
    except FallowError as error:
        tr(failed={"message": error.message, "hint": error.hint, "usage": error.exit_code == 2})


def _try(store: Store, host: str) -> None:
    folder = f"{FOLDER}/host={quote(host, safe='')}"
    key = f"{folder}/{os.urandom(4).hex()}"
    announce("write")
    store.put(key, _CONTENT)
    try:
        announce("read back")
        store.confirm(key, _CONTENT)
        announce("list")
        tr(listed=[each.size_bytes for each in store.list(folder) if each.key == key] == [len(_CONTENT)])
    finally:
        announce("delete")
        try:
            store.delete(key)
            tr(deleted=True)
        except FallowError as error:
            tr(deleted=False, left=key, why=error.message)
        if _local(store):
            with contextlib.suppress(OSError):  # another doctor may be at work in it
                Path(store.root, folder).rmdir()
                Path(store.root, FOLDER).rmdir()


def _local(store: Store) -> bool:
    return store.root.startswith("/")


if __name__ == "__main__":
    main()
