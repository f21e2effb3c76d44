"""`python -m agent.doctor.store_probe LOCATION`: tries a lake with one tiny file; a process of its own.

A hard-mounted file server that is down blocks for ever, and so may an address that drops packets.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from agent.doctor.host import exists
from agent.doctor.look import announce, tr
from fallow.errors import FallowError
from fallow.stores import Store, open_store

FOLDER = "fallow-doctor"
"""Where the probe's file goes: no table has this name, so that no reader ever sees it."""
_CONTENT = b"written and removed by `fallow doctor`\n"


def main() -> None:
    """Says how far it came; the file is removed also where it could not be found again."""
    try:
        store = open_store(sys.argv[1])
        tr(root=store.root)
        announce("look whether it is there")
        there = store.exists()
        tr(exists=there)
        if there or not _local(store):
            _try(store)
        else:
            nearest = next(each for each in Path(store.root).parents if exists(each))
            tr(nearest=str(nearest), writable=os.access(nearest, os.W_OK | os.X_OK))
    except FallowError as error:
        tr(failed={"message": error.message, "hint": error.hint, "usage": error.exit_code == 2})


def _try(store: Store) -> None:
    key = f"{FOLDER}/{os.uname().nodename}-{os.urandom(4).hex()}"
    announce("write")
    store.put(key, _CONTENT)
    try:
        announce("read back")
        store.confirm(key, _CONTENT)
        announce("list")
        tr(listed=[each.size_bytes for each in store.list(FOLDER) if each.key == key] == [len(_CONTENT)])
    finally:
        announce("delete")
        try:
            store.delete(key)
            tr(deleted=True)
        except FallowError as error:
            tr(deleted=False, left=key, why=error.message)
        if _local(store):
            with contextlib.suppress(OSError):  # another doctor may be at work in it
                Path(store.root, FOLDER).rmdir()


def _local(store: Store) -> bool:
    return store.root.startswith("/")


if __name__ == "__main__":
    main()
