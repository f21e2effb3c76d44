"""The time of a lake's newest sample: running allocations are counted up to it."""

from __future__ import annotations

import pyarrow.compute as pc

from fallow import parquet, schema
from fallow.clock import to_ms
from fallow.lake import Lake, LakeFile


def newest_row_ms(lake: Lake) -> int | None:
    """The time of the newest sample in each host's last file; None for a lake without samples.

    The statistics of a damaged footer would end the process: the times themselves are read.
    """
    files = lake.files("gpu")
    newest_day = max((file.date for file in files), default="")
    last: dict[str, LakeFile] = {}
    for file in files:
        if file.date == newest_day and (file.host not in last or last[file.host].last_seq < file.last_seq):
            last[file.host] = file
    times = parquet.read(last.values(), schema.GPU, ["time"], lake.left_out.leave_out)["time"]
    newest = pc.max(times).as_py()
    return None if newest is None else to_ms(newest)
