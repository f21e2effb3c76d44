"""The messages of Prometheus' remote-read protocol, declared here: prompb/remote.proto and types.proto without what is not asked for."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_ONE, _MANY = _FIELD.LABEL_OPTIONAL, _FIELD.LABEL_REPEATED
_TEXT, _BYTES = _FIELD.TYPE_STRING, _FIELD.TYPE_BYTES
_INTEGER, _DOUBLE, _MESSAGE = _FIELD.TYPE_INT64, _FIELD.TYPE_DOUBLE, _FIELD.TYPE_MESSAGE

_MESSAGES: dict[str, tuple[tuple[str, int, int, int, str], ...]] = {
    "LabelMatcher": (("type", 1, _ONE, _INTEGER, ""), ("name", 2, _ONE, _TEXT, ""), ("value", 3, _ONE, _TEXT, "")),
    "Query": (
        ("start_timestamp_ms", 1, _ONE, _INTEGER, ""),
        ("end_timestamp_ms", 2, _ONE, _INTEGER, ""),
        ("matchers", 3, _MANY, _MESSAGE, "LabelMatcher"),
    ),
    "ReadRequest": (("queries", 1, _MANY, _MESSAGE, "Query"),),
    "Sample": (("value", 1, _ONE, _DOUBLE, ""), ("timestamp", 2, _ONE, _INTEGER, "")),
    "Label": (("name", 1, _ONE, _BYTES, ""), ("value", 2, _ONE, _BYTES, "")),
    "TimeSeries": (("labels", 1, _MANY, _MESSAGE, "Label"), ("samples", 2, _MANY, _MESSAGE, "Sample")),
    "QueryResult": (("timeseries", 1, _MANY, _MESSAGE, "TimeSeries"),),
    "ReadResponse": (("results", 1, _MANY, _MESSAGE, "QueryResult"),),
}
"""Name, number, whether there are many, type and message of each field. An enum travels as an integer. Labels are whatever
bytes were pushed to the server: as texts, one that is no UTF-8 would make the whole answer unreadable."""


def _classes() -> dict[str, Any]:
    package = "fallow.remote_read"
    file = descriptor_pb2.FileDescriptorProto(name="fallow_remote_read.proto", package=package, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, label, kind, of in fields:
            message.field.add(
                name=field, number=number, label=label, type=kind, type_name=f".{package}.{of}" if of else None
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in _MESSAGES
    }


_CLASSES = _classes()
ReadRequest: Any = _CLASSES["ReadRequest"]
ReadResponse: Any = _CLASSES["ReadResponse"]
