"""The flags that `fallow import prometheus` and `fallow follow prometheus` share; each is a setting of the section `prometheus`."""

from __future__ import annotations

import argparse

from fallow import config

_FLAGS = {
    "url": ("ADDRESS", "address of the metrics server"),
    "token-file": ("FILE", "file with the bearer token"),
    "user": ("NAME", "name to log in with (basic authentication)"),
    "password-file": ("FILE", "file with the password"),
    "tenant": ("NAME", "tenant, sent as X-Scope-OrgID"),
    "ca-file": ("FILE", "PEM file with the authority that signed the server's certificate"),
    "certificate": ("FILE", "PEM file with this client's certificate"),
    "key": ("FILE", "PEM file with its key"),
    "collect-interval": ("DURATION", "how often the exporters read the driver"),
    "concurrency": ("N", "requests at a time"),
    "rate": ("NUMBER", "requests in a second, at most"),
}
_REPEATED = {
    "match": ("MATCHERS", """label matchers that narrow what is read, such as 'cluster="a"'; repeatable"""),
    "mapping": ("FILE", "a site's own mapping (TOML); repeatable"),
    "header": ("'NAME: VALUE'", "a header for every request; repeatable"),
}


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    for name, (metavar, meaning) in _FLAGS.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=f"{meaning} (default: prometheus.{_key(name)})")
    for name, (metavar, meaning) in _REPEATED.items():
        parser.add_argument(f"--{name}", metavar=metavar, action="append", help=meaning)


def server_settings(args: argparse.Namespace, **others: str | None) -> config.Config:
    """The settings in force where these flags and `others` (`section__key`) were given. Raises ConfigError and UsageError."""
    flags: dict[str, str | None] = {f"prometheus.{_key(name)}": getattr(args, _key(name)) for name in _FLAGS}
    for name, key in (("match", "match"), ("mapping", "mapping"), ("header", "headers")):
        given = getattr(args, name)
        flags[f"prometheus.{key}"] = None if given is None else ",".join(given)
    flags["lake.path"] = args.lake
    flags |= {name.replace("__", "."): value for name, value in others.items()}
    return config.load(flags, args.config)


def _key(name: str) -> str:
    return name.replace("-", "_")
