"""A network whose traffic is decoded by the page, and frames made by hand as the page has them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tests.rpc.protocol.network import Network
from tests.rpc.protocol.page_decoder import Decoder

if TYPE_CHECKING:
    from aiofabric.rpc.protocol.connection import Limits
    from tests.rpc.protocol.network import AcceptedCall, MadeCall
    from tests.rpc.protocol.page_decoder import Frame

__all__ = ["Recorder", "frame", "preface"]

PREFACE_BODY = struct.Struct("<4sBBHIIIIIQIH")


class Recorder(Network):
    """A network whose traffic is decoded by the page."""

    def __init__(self, client: Limits | None = None, server: Limits | None = None) -> None:
        super().__init__(client, server)
        self.decoders = {"client": Decoder("client")}
        self.decoders["server"] = Decoder("server", self.decoders["client"])

    def new(self) -> list[Frame]:
        """Deliver everything; return the frames since the last time, each with its side."""
        self.settle()
        frames = [{"side": side, **frame} for side, data in self.recorded for frame in self.decoders[side].decode(data)]
        self.recorded.clear()
        return frames

    def open_call(self) -> tuple[MadeCall, AcceptedCall]:
        """A call without messages, after both prefaces."""
        self.new()
        made = self.call()
        self.new()
        return made, self.served[made.id]


def frame(kind: int, id: int = 0, payload: bytes = b"", *, flags: int = 0, field: int = 0) -> bytes:
    """A frame as the page has it."""
    return struct.pack("<BBHIQ", kind, flags, field, len(payload), id) + payload


def preface(magic: bytes = b"aioR", lowest: int = 1, window: int = 65536, more: bytes = b"") -> bytes:
    """A PREFACE as the page has it."""
    body = PREFACE_BODY.pack(magic, lowest, 9, 0, 1, 65536, window, 4096, 8192, 1 << 20, 10, 0)
    return frame(1, 0, body + more)
