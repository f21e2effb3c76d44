"""Text of unknown origin as valid, printable UTF-8."""

from __future__ import annotations

_CONTROL = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029), "\N{REPLACEMENT CHARACTER}")


def printable(raw: bytes) -> str:
    """The bytes as text: what is no UTF-8 and what would steer a terminal becomes U+FFFD."""
    return raw.decode(errors="replace").translate(_CONTROL)


def printable_text(text: str) -> str:
    """The text without lone surrogates and control characters, which no file or terminal should be handed."""
    return text.encode(errors="replace").decode().translate(_CONTROL)
