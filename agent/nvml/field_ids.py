"""Ids of NVML's field values by the version of the driver: NVIDIA has renumbered some, and an old number means something else.

A field whose number is not known for a driver is not asked for: its column is null. The numbers were compared in NVIDIA's own
binding (nvidia-ml-py), release by release, from 11.450.129 (July 2020) to 13.615.71 (25 September 2026); `source` says where a
change of numbers is told.
"""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, ...]
"""A driver's version as numbers: `580.65.06` is (580, 65, 6)."""

NEWEST_CHECKED: Version = (615,)
"""The newest driver branch whose numbers were compared; what changes numbers is not asked of newer ones."""

_ALL: Version = ()
_AFTER_CHECKED: Version = (NEWEST_CHECKED[0] + 1,)


@dataclass(frozen=True)
class FieldId:
    """The number of one field in the drivers from `since` on and before `until`, None for all later ones; by column of the tables."""

    column: str
    number: int
    since: Version
    until: Version | None
    source: str


_STABLE = "the same in every nvidia-ml-py from 11.450.129 on"
_NEW_IN_570 = "new in nvidia-ml-py 12.570.86 (24 January 2025)"
_FIRST = (
    "nvidia-ml-py 12.575.51 (6 May 2025) and 13.580.65 (5 August 2025); in 12.570.172, 251 to 253 are power smoothing"
)
_MOVED = (
    "NVML API reference, known issues: fields 251 to 273 changed between CUDA 13.0 and 13.0 Update 1 (driver 580.82.07); "
    "nvidia-ml-py 13.580.82 (11 September 2025) to 13.615.71"
)

_FIRST_THROTTLED: Version = (575, 51)
_LAST_BEFORE_MOVE: Version = (580, 66)
"""580.65.06 is the last that is known to have the old numbers, 580.82.07 the first with the new ones: between them nobody knows."""
_MOVE: Version = (580, 82)

FIELD_IDS: tuple[FieldId, ...] = (
    FieldId("ecc_corrected_count", 3, _ALL, None, _STABLE),
    FieldId("ecc_uncorrected_count", 4, _ALL, None, _STABLE),
    FieldId("ecc_corrected_lifetime_count", 5, _ALL, None, _STABLE),
    FieldId("ecc_uncorrected_lifetime_count", 6, _ALL, None, _STABLE),
    FieldId("throttled_power_cap_ms", 74, _ALL, None, _STABLE),
    FieldId("throttled_sync_boost_ms", 76, _ALL, None, _STABLE),
    FieldId("mem_temperature_c", 82, _ALL, None, _STABLE),
    FieldId("energy_mj", 83, _ALL, None, _STABLE),
    FieldId("pcie_replay_count", 94, _ALL, None, _STABLE),
    FieldId("remapped_rows_corrected_count", 142, _ALL, None, _STABLE),
    FieldId("remapped_rows_uncorrected_count", 143, _ALL, None, _STABLE),
    FieldId("row_remap_pending", 144, _ALL, None, _STABLE),
    FieldId("row_remap_failed", 145, _ALL, None, _STABLE),
    FieldId("recovery_action", 230, (570, 86), None, _NEW_IN_570),
    FieldId("throttled_sw_thermal_ms", 251, _FIRST_THROTTLED, _LAST_BEFORE_MOVE, _FIRST),
    FieldId("throttled_hw_thermal_ms", 252, _FIRST_THROTTLED, _LAST_BEFORE_MOVE, _FIRST),
    FieldId("throttled_power_brake_ms", 253, _FIRST_THROTTLED, _LAST_BEFORE_MOVE, _FIRST),
    FieldId("throttled_sw_thermal_ms", 269, _MOVE, _AFTER_CHECKED, _MOVED),
    FieldId("throttled_hw_thermal_ms", 270, _MOVE, _AFTER_CHECKED, _MOVED),
    FieldId("throttled_power_brake_ms", 271, _MOVE, _AFTER_CHECKED, _MOVED),
)
"""Every field that is read; the ranges of one column never overlap."""


def parsed_version(text: str | None) -> Version | None:
    """The numbers of a driver's version, None where it is unknown or is none."""
    parts = (text or "").split(".")
    if len(parts) < 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    return tuple(int(part) for part in parts)


def field_numbers(version: Version | None) -> dict[str, int]:
    """The number of each field by column, for a driver of that version; of an unknown one only what never changed."""
    if version is None:
        return {each.column: each.number for each in FIELD_IDS if each.since == _ALL and each.until is None}
    return {
        each.column: each.number
        for each in FIELD_IDS
        if each.since <= version and (each.until is None or version < each.until)
    }
