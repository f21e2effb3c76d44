"""Attacks on what is read: damaged files of a lake and to import, and bombs."""

from __future__ import annotations

import os
import resource
import time
from typing import TYPE_CHECKING

from tests.attacks.inputs import Tried, attempt, bombs, mutated_inputs
from tests.attacks.lake_files import FILE_FAULTS, good_rows, mutated_files, small_lake, victim
from tests.attacks.on_pages import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_MUTATIONS = int(os.environ.get("FALLOW_ATTACK_MUTATIONS", "1000"))
_MOST_MIB, MIB = 1024, 2**20


def bad_files(folder: Path) -> Outcome:
    """Flipped bits, missing pieces, swapped footers and bombs in one host's files; another host's figures must stay."""
    began = time.monotonic()
    seen = mutated_files(_MUTATIONS)
    mutations_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    faults = dict(_faults(folder))
    wrong = [*seen.wrong, *(name for name, peak_bytes in faults.items() if not peak_bytes)]
    peak = max(mutations_mib, *(peak_bytes // MIB for peak_bytes in faults.values()))
    return Outcome(
        f"{_MUTATIONS} files: {seen.left_out} left out, {seen.read} read, {seen.refused} refused; {len(faults)} made by"
        f" hand; {len(wrong)} changed others' figures {wrong[:2] or ''}; {time.monotonic() - began:.0f} s, at most"
        f" {peak} MiB",
        holds=not (wrong or seen.refused) and peak < _MOST_MIB,
    )


def _faults(folder: Path) -> Iterator[tuple[str, int]]:
    """Each fault of a file, and the peak of memory of the command that met it; 0 where it did not end well."""
    good = good_rows(small_lake(folder / "good"))
    for name, (befall, _) in FILE_FAULTS.items():
        lake = small_lake(folder / name)
        befall(victim(lake))
        (tried,) = attempt({name: ["ledger", "--lake", lake.root]})
        is_well = tried.code == 0 and tried.is_held and good_rows(lake).equals(good)
        yield name, tried.peak_bytes if is_well else 0


def bombs_to_import(_: Path) -> Outcome:
    """A few MB that would unpack to gigabytes, of every format."""
    return _held(bombs())


def damaged_inputs(_: Path) -> Outcome:
    """Good files of every format with segments replaced, moved, doubled or lost."""
    return _held(mutated_inputs(_MUTATIONS))


def _held(every: Iterable[Tried]) -> Outcome:
    seen = list(every)
    lost = [each.name for each in seen if not each.is_held]
    peak = max(each.peak_bytes for each in seen) // MIB
    return Outcome(
        f"{len(seen)} files: {len(lost)} ended in a traceback or not at all {lost[:2] or ''}; "
        f"at most {max(each.seconds for each in seen):.1f} s CPU and {peak} MiB",
        holds=not lost and peak < _MOST_MIB,
    )
