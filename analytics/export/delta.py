"""One table of Delta Lake: which days it holds, made from what, and the replacement of some in one commit.

A commit is one new file of the table's log: readers see the rows before it or after it, and a killed writer leaves only
files that no log names. `deltalake`, an optional extra, writes; nothing else imports it. Tables keep to reader version
1 and writer version 2, which every engine reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from analytics.export.tables import DATE, SOURCE_DIGEST, ExportTable
from fallow.errors import FallowError
from fallow.os_user import effective_user
from fallow.stores.objects import explained

_KEPT_HOURS = 7 * 24
"""How long replaced files stay for readers of older versions: Delta Lake's own default."""

_OPTIONS = WriterProperties(compression="ZSTD", compression_level=3)
_NO_CONDITIONAL_PUT = re.compile(r"501 Not Implemented|conditional put is disabled", re.IGNORECASE)
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


class DeltaDays:
    """A table at an address: a folder, or `s3://`, `gs://` or `az://` with credentials from the environment.

    `facts` are stored as the table's properties. A table with other facts is another export's, and is refused.
    """

    def __init__(self, address: str, table: ExportTable, facts: Mapping[str, str]) -> None:
        self.address, self._table = address, table
        self._facts = {f"fallow.{name}": value for name, value in facts.items()}
        self._schema = table.arrow_schema
        with self._guarded("read"):
            self._delta = DeltaTable(address) if DeltaTable.is_deltatable(address) else None
        if self._delta is not None:
            self._check(self._delta)

    def _check(self, delta: DeltaTable) -> None:
        stated, remedy = delta.metadata().configuration, "name another place with --to, or remove this table first"
        if any(stated.get(name) != value for name, value in self._facts.items()):
            other = ", ".join(f"{name.partition('.')[2]} {stated.get(name) or '(none)'}" for name in self._facts)
            raise FallowError(f"the table at {self.address} is of another export ({other})", remedy)
        if not pa.schema(delta.schema().to_arrow()).equals(self._schema):
            raise FallowError(
                f"the table at {self.address} has other columns than this version of fallow writes", remedy
            )

    def digests(self) -> dict[str, str]:
        """Return, by date, the fingerprint of its rows' sources; the date is empty for a table without days."""
        if self._delta is None:
            return {}
        with self._guarded("read"):
            files = pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()
        return {str(each.get(f"partition.{DATE}") or ""): str(each.get(f"min.{SOURCE_DIGEST}")) for each in files}

    def replace(self, days: Mapping[str, pa.Table]) -> None:
        """Replace all rows of some dates, or of a table without days those of the empty date, in one commit."""
        dates = ", ".join(f"'{date}'" for date in days)
        predicate = f"{DATE} IN ({dates})" if self._table.by_day else None
        batches = (batch for rows in days.values() for batch in rows.to_batches())
        source = pa.RecordBatchReader.from_batches(self._schema, batches)
        with self._guarded("write"):
            if self._delta is None:
                self._delta = DeltaTable.create(
                    self.address,
                    self._schema,
                    partition_by=[DATE] if self._table.by_day else None,
                    name=self._table.name,
                    description=self._table.rows.row,
                    configuration=self._facts,
                    raise_if_key_not_exists=False,
                )
            write_deltalake(self._delta, source, mode="overwrite", predicate=predicate, writer_properties=_OPTIONS)

    def remove_old_files(self) -> None:
        """Delete files that were replaced, or left by a killed writer, more than a week ago."""
        if self._delta is not None:
            with self._guarded("remove old files of"):
                self._delta.vacuum(retention_hours=_KEPT_HOURS, dry_run=False)

    @contextmanager
    def _guarded(self, verb: str) -> Iterator[None]:
        """Convert errors of the library to a sentence with a remedy."""
        try:
            yield
        except CommitFailedError as error:
            raise FallowError(
                f"another command changed the table at {self.address} at the same time", "run the command again"
            ) from error
        except (DeltaError, OSError) as error:
            raise self._explained(verb, error) from error

    def _explained(self, verb: str, error: Exception) -> FallowError:
        if _NO_CONDITIONAL_PUT.search(str(error)):
            return FallowError(
                f"cannot {verb} {self.address}: the store has no conditional PUT, which a table of Delta Lake needs",
                "export to a folder, and copy it into the store with `_delta_log` last",
            )
        found = _OS_ERROR.search(str(error))
        if "://" in self.address or found is None:
            return explained(verb, self.address, f"{type(error).__name__}: {error}")
        return FallowError(
            f"cannot {verb} {self.address}: {os.strerror(int(found[1]))}",
            f"check the folder, its free space, and the rights of the user {effective_user()}",
        )
