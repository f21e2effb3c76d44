"""The ground floor: schema, lake, config, errors, clock and the one command. Imports nothing heavy."""

__version__ = "0.1.0"
