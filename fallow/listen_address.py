"""Addresses to listen on, as settings and flags write them."""

from __future__ import annotations

import ipaddress
import re

from fallow.errors import ConfigError

LOOPBACK = "127.0.0.1"

_LISTEN = re.compile(r"(?:(?:\[(?P<v6>[0-9a-fA-F:.%\w]+)\]|(?P<host>[^\[\]:\s]*)):)?(?P<port>\d{1,5})")


def parse_listen(text: str, setting: str) -> tuple[str, int]:
    """Host and port of `9477`, `:9477` (both loopback), `0.0.0.0:9477` or `[::1]:9477`; raises ConfigError."""
    match = _LISTEN.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(
            f"{setting} is '{text}', which is not an address",
            "write address:port, such as 127.0.0.1:9477 or [::1]:9477",
        )
    return match["v6"] or match["host"] or LOOPBACK, int(match["port"])


def is_of_this_host(host: str) -> bool:
    """Whether nobody from elsewhere reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
