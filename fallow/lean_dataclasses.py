"""Loads `dataclasses` without `inspect`, and with it `ast`, `dis` and `tokenize`: 0.9 MiB in each process of the agent.

`dataclasses` wants it for two things: a class's annotations, and the signature that a class without a docstring gets as its
docstring, which nobody reads here. Whatever else it may ask for is asked of the real module, which is loaded then.
"""

from __future__ import annotations

import sys
import types
from typing import Any


class _Inspect(types.ModuleType):
    @staticmethod
    def get_annotations(of: type) -> dict[str, Any]:
        return dict(of.__dict__.get("__annotations__", {}))  # noqa: RUF063  # what this stands in for

    @staticmethod
    def signature(_: object) -> str:
        return ""

    def __getattr__(self, name: str) -> Any:
        import inspect

        return getattr(inspect, name)


def load() -> None:
    """Imports `dataclasses` with a stand-in for `inspect`, which is taken away again for everybody else."""
    if {"dataclasses", "inspect"} & sys.modules.keys():
        return
    sys.modules["inspect"] = _Inspect("inspect")
    try:
        __import__("dataclasses")
    finally:
        del sys.modules["inspect"]
