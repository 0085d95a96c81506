"""Metadata as grpc.aio's users give and get it, and as the runtime sends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..protocol.metadata import check_metadata
from .grpcio import aio, grpc

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ENCODING", "Metadatum", "Pairs", "mutable", "named", "with_compression", "wire", "wire_trailing"]

Pairs = tuple[tuple[str, str | bytes], ...]

ENCODING = "grpc-encoding"
"""The key that tells the server which compression a call asked for. Nothing is compressed."""

_NAMES = {grpc.Compression.Deflate: "deflate", grpc.Compression.Gzip: "gzip"}


class Metadatum(NamedTuple):
    """One pair of the metadata that a handler reads."""

    key: str
    value: str | bytes


def mutable(metadata: Any) -> Any:
    """The metadata of a call as a `Metadata`, for interceptors."""
    if isinstance(metadata, aio.Metadata):
        return metadata
    return aio.Metadata(*(metadata or ()))


def _plain(pair: Any) -> tuple[Any, Any]:
    """A pair in which text is `str`: gRPC also takes bytes for a key, and for a value that is text."""
    try:
        key, value = pair
    except (TypeError, ValueError):
        raise TypeError(f"Metadata consists of pairs of a key and a value; this is no pair: {pair!r}") from None
    if isinstance(key, bytes):
        key = key.decode("ascii")
    if isinstance(value, bytes) and isinstance(key, str) and not key.endswith("-bin"):
        value = value.decode("ascii")
    return key, value


def wire(metadata: Iterable[Any] | None) -> Pairs:
    """The metadata as it is sent. Raises TypeError for wrong types, and ValueError for characters that cannot be."""
    if not metadata:
        return ()
    return check_metadata(_plain(pair) for pair in metadata)


def wire_trailing(metadata: Any) -> Pairs:
    """The trailing metadata of a handler, which is a `Metadata`, or a tuple or list of pairs; else TypeError."""
    if isinstance(metadata, aio.Metadata) or (
        isinstance(metadata, tuple | list) and all(isinstance(pair, tuple) for pair in metadata)
    ):
        return wire(metadata)
    raise TypeError(f"The trailing metadata must be a tuple of pairs of a key and a value, not {metadata!r}")


def with_compression(pairs: Pairs, compression: Any) -> Pairs:
    """Add the compression that a call, or its channel, asked for."""
    name = _NAMES.get(compression)
    return (*pairs, (ENCODING, name)) if name else pairs


def named(pairs: Pairs) -> tuple[Metadatum, ...]:
    """The invocation metadata as a handler reads it."""
    return tuple([Metadatum(key, value) for key, value in pairs if key != ENCODING])
