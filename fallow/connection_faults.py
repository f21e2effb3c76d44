"""Descriptions of socket and TLS errors, without any text that was sent."""

from __future__ import annotations

import socket
import ssl


def connection_fault(error: Exception) -> str:
    """Return the fault as a clause without a subject name, such as `it did not answer`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection ({(error.reason or 'it ended').replace('_', ' ').lower()})"
    if isinstance(error, TimeoutError):
        return "it did not answer"
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved"
    return (getattr(error, "strerror", None) or "the connection broke").lower()
