"""A decoder of the RPC protocol, written from ``docs/reference/rpc-protocol.md`` alone.

It imports nothing of aiofabric, and is as strict as the page: ``ValueError`` is raised for all that the page forbids.
"""

from __future__ import annotations

import re
import struct
from typing import Any

__all__ = ["Decoder", "Frame", "Pairs"]

Frame = dict[str, Any]
Pairs = list[tuple[str, str | bytes]]

KINDS = {
    1: "PREFACE",
    2: "DEFINE",
    3: "START",
    4: "HEADERS",
    5: "MESSAGE",
    6: "END",
    7: "STATUS",
    8: "CANCEL",
    9: "CREDIT",
    10: "PROCEED",
    11: "GOAWAY",
    12: "PING",
    13: "PONG",
    14: "REGION",
    15: "RELEASE",
}
SIDES = {"START": "client", "HEADERS": "server", "END": "client", "STATUS": "server", "CANCEL": "client"}
EARLY = {"recv_size": 65536, "window": 65536, "table": 0, "max_metadata": 8192, "max_message": 65536, "max_calls": 100}
IN_FULL = 65535
KEY = re.compile(r"[a-z0-9_.-]+")


class Reader:
    """The payload of one frame, from the front to the back."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        if len(self.data) < size:
            raise ValueError(f"{size} bytes are wanted, {len(self.data)} are left")
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def number(self, size: int) -> int:
        """The next number, of ``size`` bytes."""
        return int.from_bytes(self.take(size), "little")

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self.data))

    def end(self) -> None:
        """Nothing may be left."""
        if self.data:
            raise ValueError(f"{len(self.data)} bytes too many")


class Half:
    """One direction of one call."""

    def __init__(self) -> None:
        self.size: int | None = None  # of the message that is under way
        self.pieces = b""
        self.headers = self.messages = self.ended = self.over = False
        self.announced = self.paid = False  # RENDEZVOUS without PROCEED; pieces that cost nothing
        self.window: int | None = None
        self.spent = self.granted = 0

    def spend(self, size: int) -> None:
        """The cost of one MESSAGE."""
        self.spent += size + 64
        if self.window is not None and self.spent > self.window + self.granted:
            raise ValueError(f"{self.spent} credits are spent of {self.window + self.granted}")


class Decoder:
    """Fabric messages of one side in, dicts out. ``other`` decodes the other side and is fed in the order of events."""

    def __init__(self, side: str, other: Decoder | None = None) -> None:
        self.side = side
        self.other = other
        self.preface: Frame | None = None
        self.calls: dict[int, Half] = {}
        self.last_call = 0
        self.names: tuple[list[str], list[str]] = ([], [])
        self.table = 0
        if other is not None:
            other.other = self

    def limit(self, name: str) -> int:
        """A limit of the receiver: before its preface, and for what crosses it, the page's own."""
        if self.other is None:
            return 1 << 64
        announced = self.other.preface[name] if self.other.preface else 0
        return max(EARLY[name], announced)

    def decode(self, data: bytes) -> list[Frame]:
        """The frames of one fabric message."""
        if len(data) > self.limit("recv_size"):
            raise ValueError(f"a fabric message of {len(data)} bytes")
        frames = []
        message = Reader(data)
        while message.data:
            kind, flags, field, length, number = struct.unpack("<BBHIQ", message.take(16))
            payload = Reader(message.take(length))
            name = KINDS.get(kind)
            if self.preface is None and name != "PREFACE":
                raise ValueError("the first frame is not PREFACE")
            if name is None:
                if not kind & 0x80:
                    raise ValueError(f"unknown kind {kind}")
                continue
            if SIDES.get(name, self.side) != self.side:
                raise ValueError(f"{name} of the {self.side}")
            frame: Frame = {"kind": name, "id": number}
            if getattr(self, "_" + name.lower())(frame, flags, field, payload) is False:
                continue  # for a call that is over
            if name in ("START", "STATUS"):
                payload.end()
            frames.append(frame)
        return frames

    def _preface(self, frame: Frame, _flags: int, _field: int, payload: Reader) -> None:
        if self.preface is not None:
            raise ValueError("a second PREFACE")
        if payload.take(4) != b"aioR":
            raise ValueError("another protocol")
        frame |= {"lowest": payload.number(1), "highest": payload.number(1)}
        payload.number(2)
        for name in ("features", "recv_size", "window", "table", "max_metadata"):
            frame[name] = payload.number(4)
        frame |= {"max_message": payload.number(8), "max_calls": payload.number(4)}
        frame["credentials"] = payload.take(payload.number(2))
        if not frame["lowest"] <= 1 <= frame["highest"]:
            raise ValueError("no common version")
        if min(frame["recv_size"], frame["window"]) < 65536 or frame["table"] > 65536 or frame["max_metadata"] > 32768:
            raise ValueError("a limit outside of its range")
        if self.side == "server" and frame["credentials"]:
            raise ValueError("credentials of a server")
        self.preface = frame

    def _define(self, frame: Frame, flags: int, field: int, payload: Reader) -> None:
        if flags > 1:
            raise ValueError(f"table {flags}")
        name = payload.rest().decode()
        if field != len(self.names[flags]):
            raise ValueError(f"index {field} of a table with {len(self.names[flags])} names")
        if flags == 1:
            self._check_key(name)
        self.table += len(name.encode()) + 32
        if self.table > self.limit("table"):
            raise ValueError("the table is full")
        self.names[flags].append(name)
        frame |= {"table": flags, "index": field, "name": name}

    def _name(self, table: int, index: int, payload: Reader) -> str:
        """A name by its index, or in full."""
        if index == IN_FULL:
            return payload.take(payload.number(2)).decode()
        if index >= len(self.names[table]):
            raise ValueError(f"index {index} is not defined")
        return self.names[table][index]

    @staticmethod
    def _check_key(key: str) -> None:
        if not KEY.fullmatch(key):
            raise ValueError(f"key {key!r}")

    def _metadata(self, data: bytes) -> Pairs:
        block = Reader(data)
        pairs: Pairs = []
        size = 0
        for _ in range(block.number(2)):
            key = self._name(1, block.number(2), block)
            self._check_key(key)
            value = block.take(block.number(4))
            size += len(key) + len(value) + 32
            if key.endswith("-bin"):
                pairs.append((key, value))
                continue
            if any(not 0x20 <= byte <= 0x7E for byte in value):
                raise ValueError(f"value {value!r} of {key}")
            pairs.append((key, value.decode("ascii")))
        block.end()
        if size > self.limit("max_metadata"):
            raise ValueError(f"metadata of {size} bytes")
        return pairs

    def _call(self, number: int) -> Half | None:
        """This direction of a call that began; None if the call is over."""
        client = self if self.side == "client" else self.other
        if client is not None and number not in client.calls:
            raise ValueError(f"call {number} never began")
        for decoder in (self, self.other):
            if decoder is not None and number in decoder.calls and decoder.calls[number].over:
                return None
        return self.calls.setdefault(number, Half())

    def _opposite(self, number: int) -> Half | None:
        """The peer's direction of a call, if the peer is decoded."""
        return None if self.other is None else self.other.calls.setdefault(number, Half())

    def _start(self, frame: Frame, flags: int, field: int, payload: Reader) -> None:
        if frame["id"] <= self.last_call:
            raise ValueError(f"call {frame['id']} after {self.last_call}")
        self.last_call = frame["id"]
        call = self.calls[frame["id"]] = Half()
        opposite = self._opposite(frame["id"])
        frame["early"] = bool(flags & 0x80)
        if self.other is not None and opposite is not None:
            call.window = EARLY["window"] if frame["early"] else self.limit("window")
            opposite.window = self.other.limit("window")
        limit = payload.number(8)
        frame["time_limit"] = None if limit == (1 << 64) - 1 else limit
        frame["in_full"] = field == IN_FULL
        frame["method"] = self._name(0, field, payload)
        frame["metadata"] = self._metadata(payload.take(payload.number(4))) if flags & 0x04 else []
        frame["message"] = payload.rest() if flags & 0x02 else None
        call.ended = frame["end"] = bool(flags & 0x01)
        if frame["message"] is not None:
            call.spend(len(frame["message"]))

    def _headers(self, frame: Frame, _flags: int, _field: int, payload: Reader) -> bool:
        metadata = self._metadata(payload.rest())  # its names count also if the call is over
        call = self._call(frame["id"])
        if call is None:
            return False
        if call.headers or call.messages:
            raise ValueError("HEADERS twice or after a message")
        call.headers = True
        frame["metadata"] = metadata
        return True

    def _message(self, frame: Frame, flags: int, _field: int, payload: Reader) -> bool:
        call = self._call(frame["id"])
        if call is None:
            return False
        if call.ended:
            raise ValueError("a message after END")
        first, more = bool(flags & 0x10), bool(flags & 0x20)
        frame |= {"end": self.side == "client" and bool(flags & 0x01), "first": first, "more": more}
        frame |= {"rendezvous": bool(flags & 0x40), "size": None, "message": None}
        if frame["rendezvous"] and not first:
            raise ValueError("RENDEZVOUS without FIRST")
        under_way = call.size is not None
        if first:
            if under_way or not more:
                raise ValueError("FIRST within a message, or without MORE")
            call.size = frame["size"] = payload.number(8)
            if call.window is not None and call.size > call.window and not frame["rendezvous"]:
                raise ValueError(f"a message of {call.size} bytes was not announced")
        elif more and not under_way:
            raise ValueError("MORE without FIRST")
        frame["data"] = data = payload.rest()
        call.messages = True
        if call.announced:
            raise ValueError("a piece before PROCEED")
        if not call.paid:
            call.spend(len(data))
        call.announced = frame["rendezvous"]
        if call.size is None:
            frame["message"] = data
        else:
            if not data:
                raise ValueError("an empty piece")
            call.pieces += data
            if len(call.pieces) > call.size or (len(call.pieces) == call.size) == more:
                raise ValueError(f"{len(call.pieces)} bytes of a message with {call.size}")
            if not more:
                frame["message"], call.pieces, call.size = call.pieces, b"", None
                call.paid = False
        if frame["end"]:
            if more:
                raise ValueError("END within a message")
            call.ended = True
        return True

    def _end(self, frame: Frame, _flags: int, _field: int, _payload: Reader) -> bool:
        call = self._call(frame["id"])
        if call is None:
            return False
        if call.ended or call.size is not None:
            raise ValueError("END twice, or within a message")
        call.ended = True
        return True

    def _status(self, frame: Frame, flags: int, field: int, payload: Reader) -> bool:
        details = payload.take(payload.number(4)) if flags & 0x08 else b""
        metadata = self._metadata(payload.take(payload.number(4))) if flags & 0x04 else []
        message = payload.rest() if flags & 0x02 else None
        if len(details) > 8192 or len(message or b"") > 16384:
            raise ValueError("details or message of STATUS are too long")
        frame |= {"code": field, "details": details.decode(errors="replace"), "metadata": metadata, "message": message}
        frame["refused"] = bool(flags & 0x80)
        call = self._call(frame["id"])
        if call is None:
            return False
        if call.size is not None and field == 0:
            raise ValueError("STATUS with code 0 within a message")
        call.over = True
        return True

    def _cancel(self, frame: Frame, _flags: int, field: int, _payload: Reader) -> bool:
        call = self._call(frame["id"])
        if call is None:
            return False
        call.over = True
        frame["code"] = field
        return True

    def _credit(self, frame: Frame, _flags: int, _field: int, payload: Reader) -> bool:
        frame["credits"] = payload.number(4)
        if not frame["credits"]:
            raise ValueError("CREDIT of nothing")
        if self._call(frame["id"]) is None:
            return False
        sender = self._opposite(frame["id"])
        if sender is not None:
            sender.granted += frame["credits"]
            if sender.granted > sender.spent:
                raise ValueError("more is granted than was spent")
        return True

    def _proceed(self, frame: Frame, _flags: int, _field: int, _payload: Reader) -> bool:
        if self._call(frame["id"]) is None:
            return False
        sender = self._opposite(frame["id"])
        if sender is not None:
            if not sender.announced:
                raise ValueError("PROCEED for nothing")
            sender.announced, sender.paid = False, True
        return True

    def _goaway(self, frame: Frame, _flags: int, field: int, payload: Reader) -> None:
        frame |= {"reason": field, "text": payload.rest().decode(errors="replace")}

    def _ping(self, frame: Frame, _flags: int, _field: int, _payload: Reader) -> None:
        pass

    _pong = _ping

    def _region(self, frame: Frame, flags: int, _field: int, payload: Reader) -> bool:
        frame |= {"read": bool(flags & 1), "write": bool(flags & 2), "number": payload.number(8)}
        frame |= {"address": payload.number(8), "length": payload.number(8)}
        frame["key"] = payload.take(payload.number(2))
        return self._call(frame["id"]) is not None

    def _release(self, frame: Frame, _flags: int, _field: int, payload: Reader) -> None:
        frame["number"] = payload.number(8)  # it counts also after the call's end
