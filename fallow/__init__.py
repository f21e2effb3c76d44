"""The ground floor: schema, lake, config, errors, clock and the one command. Imports nothing heavy."""

from fallow import lean_dataclasses

lean_dataclasses.load()  # before the first dataclass

__version__ = "0.1.0"
