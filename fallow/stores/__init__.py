"""Stores hold the files of a lake. Each kind of store has a class with the methods of `Store`."""

from __future__ import annotations

from fallow.errors import UsageError
from fallow.stores.local import LocalStore
from fallow.stores.model import Store, Stored

__all__ = ["OBJECT_SCHEMES", "LocalStore", "Store", "Stored", "is_folder", "open_store"]

OBJECT_SCHEMES = ("s3", "gs", "az")
"""Amazon S3 and compatible stores, Google Cloud Storage, Azure Blob Storage."""


def is_folder(location: str) -> bool:
    """Return whether the address of a lake is a folder."""
    scheme, separator, _ = location.partition("://")
    return not separator or scheme == "file"


def open_store(location: str) -> Store:
    """Return the store at a location, without contacting it.

    Raises UsageError for an unknown scheme, and for an object store's address that is not `scheme://bucket/prefix`.
    """
    if is_folder(location):
        return LocalStore(location)
    scheme = location.partition("://")[0]
    if scheme in OBJECT_SCHEMES:
        from fallow.stores.objects import ObjectStore  # loaded for object stores only

        return ObjectStore(location)
    raise UsageError(
        f"no store for {scheme}://", f"give a folder, or an address with {'://, '.join(OBJECT_SCHEMES)}://"
    )
