"""A library whose code is released works as before, and takes no memory until then."""

from __future__ import annotations

from tests.conftest import run_python

PROGRAM = """
import re
from pathlib import Path
from arro3.core import Array, DataType
from fallow.process_memory import release_code

def file_pages_kib():
    parts = re.split("(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    sizes = [[int(re.search(f"(?m)^{key}: +([0-9]+)", part)[1]) for key in ("Rss", "Anonymous")]
             for part in parts if "/arro3/core/" in part]
    return sum(rss - anonymous for rss, anonymous in sizes)

before = file_pages_kib()
release_code("arro3")
print(file_pages_kib() < before / 10, Array([1, 2], type=DataType.int64()).to_pylist())
"""


def test_released_code_is_out_of_memory_and_works() -> None:
    done = run_python("-c", PROGRAM)
    assert done.stdout.split(maxsplit=1) == ["True", "[1, 2]\n"], done.stderr
