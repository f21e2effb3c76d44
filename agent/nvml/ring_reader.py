"""Reads the driver's sample rings into one buffer that is kept.

The binding's own function makes two calls and an array of structures for each of the some hundred drains a minute; this
one call into a kept buffer takes a third of its time.
"""

from __future__ import annotations

import ctypes
import struct

import pynvml

_SAMPLE = struct.Struct("=QI4x")  # nvmlSample_t: a time stamp in us, and a union whose first half is the percentage
_ROOM = 512  # samples; the rings hold 72 to 120


class RingReader:
    """One buffer for all GPUs and rings: what was read is handed out before the next call."""

    def __init__(self) -> None:
        self._function = pynvml.nvmlLib["nvmlDeviceGetSamples"]
        self._function.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_ulonglong] + 3 * [ctypes.c_void_p]
        self._type = ctypes.c_int()
        self._count = ctypes.c_uint()
        self._samples = ctypes.create_string_buffer(_SAMPLE.size * _ROOM)
        self._addresses = tuple(ctypes.addressof(each) for each in (self._type, self._count, self._samples))

    def nvmlDeviceGetSamples(self, handle: object, kind: int, last_seen_us: int) -> list[tuple[int, int]]:  # noqa: N802
        """Samples newer than `last_seen_us` as (time stamp in us, percent); raises NVMLError.

        Named as the driver's function, because it is announced and counted under its name.
        """
        self._count.value = _ROOM
        code = self._function(handle, kind, last_seen_us, *self._addresses)
        if code:
            raise pynvml.NVMLError(code)
        return list(_SAMPLE.iter_unpack(memoryview(self._samples)[: self._count.value * _SAMPLE.size]))
