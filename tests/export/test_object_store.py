"""An export into an object store: a store without conditional writes is refused before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fallow import schema
from fallow.lake import Lake
from tests.export.test_export import DAY_S, export, small
from tests.in_process import run_in_process
from tests.ledger.rows import samples, write
from tests.publishing.conftest import forget_clients, object_store, s3

if TYPE_CHECKING:
    from tests.publishing.conftest import S3

pytestmark = pytest.mark.long

__all__ = ["object_store", "s3", "small"]


def test_a_store_holds_the_tables_or_is_refused_with_the_reason(small: Lake, s3: S3) -> None:
    to = f"{s3.location}/exports"
    done = run_in_process("lake", "export", "--lake", small.root, "--to", to, **s3.environment)
    if done.returncode:  # Swift, for one
        assert done.stderr == (
            f"fallow: cannot write {to}/ledger: the store has no conditional PUT, which a table of Delta Lake needs; "
            "export to a folder, and copy it into the store with `_delta_log` last\n"
        )
        forget_clients()
        assert list(Lake.at(to).store.list("")) == []
        return
    assert export(small, to, **s3.environment)["ledger"]["written"] == []
    write(small, schema.GPU, samples("gpu-a", DAY_S + 7200, DAY_S + 9000, every_s=60, process_count=1), "h1")
    assert len(export(small, to, **s3.environment)["ledger"]["written"]) == 1
