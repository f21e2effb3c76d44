"""Days whose samples were deleted on purpose: their ledger stays as it was kept, for it can never be built again.

`.expired/date=D.json` in the lake says so of one day, and stands before the first of its files goes. What a host publishes later for
such a day is not counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from fallow.lake import Lake

FOLDER = ".expired"
"""Where the records lie in the lake: no table has this name."""

_KEY = re.compile(rf"{re.escape(FOLDER)}/date=(\d{{4}}-\d\d-\d\d)\.json", re.ASCII)


def expired_days(lake: Lake) -> frozenset[str]:
    """The dates whose samples have expired; LakeError where the lake cannot be listed."""
    keys = (_KEY.fullmatch(stored.key) for stored in lake.store.list(FOLDER) if not stored.fault)
    return frozenset(match[1] for match in keys if match is not None)


def record_expiry(lake: Lake, date: str, facts: Mapping[str, object]) -> None:
    """Notes that samples of a day go; `facts` are for whoever reads the record. LakeError where it cannot be kept."""
    key, data = f"{FOLDER}/date={date}.json", (json.dumps(facts, indent=2, sort_keys=True) + "\n").encode()
    lake.store.put(key, data)
    lake.store.confirm(key, data)
