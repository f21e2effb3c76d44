"""Field values: many small facts of a GPU in one driver call, each with a return code of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.nvml.driver import Driver, Gpu

_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
}


def read_fields(driver: Driver, gpu: Gpu, ids: Sequence[int]) -> dict[int, int]:
    """The values of those fields that the GPU has, as integers in the driver's units.

    A field that is not supported is not asked for again. Raises GpuGoneError and DriverGoneError.
    """
    wanted = [each for each in ids if each not in gpu.fields_off] if gpu.fields_off else list(ids)
    found = driver.ask_fields(gpu, wanted) if wanted else None
    if found is None:
        return {}
    values = {}
    for each in found:
        if each.nvmlReturn:
            driver.judge_field(gpu, each.fieldId, each.nvmlReturn)
        elif (member := _MEMBERS.get(each.valueType)) is not None:
            values[each.fieldId] = int(getattr(each.value, member))
    return values
