"""Stores: where a lake's files lie. One class per kind of place, all with the same verbs."""

from __future__ import annotations

from fallow.errors import UsageError
from fallow.stores.local import LocalStore
from fallow.stores.model import Store, Stored

__all__ = ["OBJECT_SCHEMES", "LocalStore", "Store", "Stored", "is_folder", "open_store"]

OBJECT_SCHEMES = ("s3", "gs", "az")
"""Amazon S3 and everything that speaks its language, Google Cloud Storage, Azure Blob Storage."""


def is_folder(location: str) -> bool:
    """Whether a lake's address is that of a folder."""
    scheme, separator, _ = location.partition("://")
    return not separator or scheme == "file"


def open_store(location: str) -> Store:
    """The store at a location, which is not contacted yet.

    Raises UsageError where its scheme has no store, and where an object store's address is not `scheme://bucket/prefix`.
    """
    if is_folder(location):
        return LocalStore(location)
    scheme = location.partition("://")[0]
    if scheme in OBJECT_SCHEMES:
        from fallow.stores.objects import ObjectStore  # a lake in a folder never pays for it

        return ObjectStore(location)
    raise UsageError(
        f"no store for {scheme}://", f"give a folder, or an address with {'://, '.join(OBJECT_SCHEMES)}://"
    )
