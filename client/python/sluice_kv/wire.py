"""Messages and calls of the node daemon's protocol, made at import from `node.binpb`.

The descriptor set is generated from proto/sluice/v1/node.proto when the package is built. Immutable
after import, so safe for threads."""
from __future__ import annotations

from importlib import resources
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "sluice.v1"
SERVICE = f"{PACKAGE}.Node"


def _load_pool() -> Any:
    """The protocol's descriptors, in a pool of their own: others may have files of these names."""
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(resources.files("sluice_kv").joinpath("node.binpb").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


_POOL = _load_pool()


def message(name: str) -> Any:
    """The class of a message, such as `LoadRequest`."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def enum_names(name: str) -> dict[int, str]:
    """Names of an enum's values without its prefix, in lower case: {1: "not_stored", ...}."""
    values = _POOL.FindEnumTypeByName(f"{PACKAGE}.{name}").values
    words = "".join("_" + c if c.isupper() else c for c in name).lstrip("_").upper()
    return {v.number: v.name.removeprefix(words + "_").lower() for v in values}


def enum_value(name: str, value: str) -> int:
    """Number of an enum's value that is named as `enum_names` does."""
    return {text: number for number, text in enum_names(name).items()}[value]


class Stub:
    """The Node service: one callable per rpc, by the rpc's name."""

    def __init__(self, channel: grpc.Channel) -> None:
        for method in _POOL.FindServiceByName(SERVICE).methods:
            connect = channel.unary_stream if method.server_streaming else channel.unary_unary
            call = connect(f"/{SERVICE}/{method.name}",
                           request_serializer=message(method.input_type.name).SerializeToString,
                           response_deserializer=message(method.output_type.name).FromString)
            setattr(self, method.name, call)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the Node service has no rpc {name}")
