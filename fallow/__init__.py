"""The ground floor: schema, lake, config, errors, clock and the one command. Imports nothing heavy."""

from fallow.lean_imports import import_without

__version__ = "0.1.0"

# dataclasses uses of inspect what is below; inspect and what it loads take 0.8 MiB in each process of the agent
import_without(
    "dataclasses",
    "inspect",
    signature=lambda _: "",  # for the docstring of a class without one
    get_annotations=lambda cls: dict(vars(cls).get("__annotations__", {})),
)
