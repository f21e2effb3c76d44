"""The time of a lake's newest sample: running allocations are counted up to it."""

from __future__ import annotations

from fallow import parquet
from fallow.clock import to_ms
from fallow.errors import UnusableFileError
from fallow.lake import Lake, LakeFile


def newest_row_ms(lake: Lake) -> int | None:
    """The time of the newest sample, by the statistics of each host's last file; None for a lake without samples."""
    files = lake.files("gpu")
    newest_day = max((file.date for file in files), default="")
    last: dict[str, LakeFile] = {}
    for file in files:
        if file.date == newest_day and (file.host not in last or last[file.host].last_seq < file.last_seq):
            last[file.host] = file
    return max((moment for file in last.values() if (moment := _last_ms(lake, file)) is not None), default=None)


def _last_ms(lake: Lake, file: LakeFile) -> int | None:
    try:
        facts = parquet.open_file(file).metadata
    except UnusableFileError as error:
        lake.left_out.leave_out(file, error)
        return None
    if "time" not in facts.schema.names:
        return None
    column = facts.schema.names.index("time")
    groups = (facts.row_group(number).column(column).statistics for number in range(facts.num_row_groups))
    return max((to_ms(each.max) for each in groups if each is not None and each.has_min_max), default=None)
