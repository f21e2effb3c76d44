"""OTLP's request and answers, in protobuf and in JSON."""

from __future__ import annotations

import json

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from fallow.errors import InputError

PROTOBUF, JSON = "application/x-protobuf", "application/json"

_STATUS_MESSAGE = b"\x12"
"""Tag of `message`, field 2 of google.rpc.Status, which OTLP answers errors with."""


def read_request(body: bytes, content_type: str) -> ExportMetricsServiceRequest:
    """The request; raises InputError where the body is none."""
    found = ExportMetricsServiceRequest()
    try:
        if content_type == JSON:
            json_format.Parse(body, found, ignore_unknown_fields=True)
        else:
            found.ParseFromString(body)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"the body is no ExportMetricsServiceRequest in {content_type}", "see docs/opentelemetry.md"
        ) from error
    return found


def accepted(content_type: str, rejected: int = 0, why: str = "") -> bytes:
    """The answer to a request that was taken, but for so many points."""
    answer = ExportMetricsServiceResponse()
    if rejected:
        answer.partial_success.rejected_data_points = rejected
        answer.partial_success.error_message = why
    encoded: bytes = (
        json_format.MessageToJson(answer, indent=None).encode() if content_type == JSON else answer.SerializeToString()
    )
    return encoded


def refused(content_type: str, why: str) -> bytes:
    """A google.rpc.Status that says why a request was not taken."""
    if content_type == JSON:
        return json.dumps({"message": why}).encode()
    text = why.encode()
    return _STATUS_MESSAGE + _varint(len(text)) + text


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
