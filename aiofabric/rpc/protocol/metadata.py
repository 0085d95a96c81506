"""Metadata blocks: the pairs of key and value that go with START, HEADERS and STATUS.

A block ::

    u16  number of pairs
    for each pair:
        u16  index of the key, or 65535 and then: u16 length of the key, the key
        u32  length of the value, then the value

A key consists of lower-case ASCII letters, digits, and ``_``, ``-``, ``.``. The value of a key that ends with ``-bin``
is any bytes. Every other value is printable ASCII text. The size of a pair, for limits, is the lengths of both and 32.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from .frames import NO_INDEX
from .interning import KEYS, ReceivedNames, SentNames
from .status import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Metadata", "check_metadata", "decode_metadata", "encode_metadata", "metadata_size"]

Metadata = tuple[tuple[str, str | bytes], ...]

_COUNT = struct.Struct("<H")
_LENGTH = struct.Struct("<I")
_PAIR_COST = 32
_key = re.compile(r"[0-9a-z_.\-]+").fullmatch
_text = re.compile(rb"[\x20-\x7e]*").fullmatch


def check_metadata(pairs: Iterable[Sequence[str | bytes]]) -> Metadata:
    """The pairs as a tuple; raise TypeError or ValueError for pairs that cannot be sent."""
    checked = []
    if hasattr(pairs, "keys"):
        raise TypeError("Metadata consists of pairs of a key and a value, and not of a mapping: use its items()")
    for pair in pairs:
        try:
            if isinstance(pair, str):
                raise TypeError  # two letters are no pair
            key, value = pair
        except (TypeError, ValueError):
            raise TypeError(f"Metadata consists of pairs of a key and a value; this is no pair: {pair!r}") from None
        if not isinstance(key, str):
            raise TypeError(f"A metadata key must be a str, not {type(key).__name__}: {key!r}")
        if not _key(key):
            raise ValueError(f"A metadata key has only a-z, 0-9 and the characters _ - . in it: {key!r}")
        if key.endswith("-bin"):
            if not isinstance(value, bytes):
                raise TypeError(f"The value of the metadata key {key!r} must be bytes, because it ends with -bin")
        elif isinstance(value, bytes):
            raise TypeError(
                f"The value of the metadata key {key!r} must be a str: only keys ending with -bin have bytes"
            )
        elif not isinstance(value, str):
            raise TypeError(f"The value of the metadata key {key!r} must be a str, not {type(value).__name__}")
        elif not (value.isascii() and _text(value.encode())):
            raise ValueError(f"The value of the metadata key {key!r} must be printable ASCII; others need a -bin key")
        checked.append((key, value))
    return tuple(checked)


def metadata_size(pairs: Metadata) -> int:
    """Bytes that count against limits."""
    return sum(len(key) + len(value) + _PAIR_COST for key, value in pairs)


def encode_metadata(pairs: Metadata, names: SentNames, definitions: list[bytes]) -> bytes:
    """A block for checked pairs. Frames that define keys are appended to ``definitions`` and must be sent before."""
    parts = [_COUNT.pack(len(pairs))]
    indexes = names.indexes[KEYS]
    for key, value in pairs:
        index = indexes.get(key)
        if index is None:
            definition = names.define(KEYS, key)
            if definition is None:
                data = key.encode()
                parts.append(_COUNT.pack(NO_INDEX) + _COUNT.pack(len(data)) + data)
            else:
                definitions.append(definition)
                index = indexes[key]
        if index is not None:
            parts.append(_COUNT.pack(index))
        raw = value if isinstance(value, bytes) else value.encode()
        parts.append(_LENGTH.pack(len(raw)))
        parts.append(raw)
    return b"".join(parts)


def decode_metadata(block: memoryview, names: ReceivedNames) -> Metadata:
    """The pairs of a block that must end where the pairs end."""
    (count,) = _COUNT.unpack_from(block)
    at, pairs = 2, list[tuple[str, str | bytes]]()
    for _ in range(count):
        (index,) = _COUNT.unpack_from(block, at)
        at += 2
        if index == NO_INDEX:
            (size,) = _COUNT.unpack_from(block, at)
            key = bytes(block[at + 2 : at + 2 + size]).decode("latin-1")
            at += 2 + size
        else:
            key = names.look_up(KEYS, index)
        if not _key(key):
            raise ProtocolError(f"A metadata key has characters that are not allowed: {key[:100]!r}")
        (size,) = _LENGTH.unpack_from(block, at)
        at += 4
        value = bytes(block[at : at + size])
        if len(value) != size:
            raise ProtocolError("A metadata value is incomplete")
        at += size
        if key.endswith("-bin"):
            pairs.append((key, value))
        elif _text(value):
            pairs.append((key, value.decode("ascii")))
        else:
            raise ProtocolError(f"The value of the metadata key {key[:100]!r} is not printable ASCII")
    if at != len(block):
        raise ProtocolError("A metadata block is longer than its pairs")
    return tuple(pairs)
