"""Version numbers of drivers and of CUDA, which compare as numbers and not as text."""

from __future__ import annotations

import re

Version = tuple[int, ...]
"""580.65.06 is (580, 65, 6)."""
Cuda = tuple[int, int]
"""12.8 is (12, 8)."""

_NUMBERS = re.compile(r"\d+(?:\.\d+)+")
_LIBRARY = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")


def version(text: str) -> Version | None:
    """The first dotted number in a text; None where there is none."""
    match = _NUMBERS.search(text)
    return None if match is None else tuple(int(part) for part in match[0].split("."))


def cuda(text: str) -> Cuda | None:
    """Major and minor of the first dotted number in a text."""
    found = version(text)
    return None if found is None else (found[0], found[1])


def library_version(name: str) -> str | None:
    """The driver version in a library's file name, such as `libcuda.so.580.65.06`."""
    match = _LIBRARY.search(name)
    return None if match is None else match[1]


def shown(numbers: Version) -> str:
    """12.8 again; driver versions keep their two digits: 580.65.06."""
    return ".".join(str(part) if index < 2 else f"{part:02}" for index, part in enumerate(numbers))
