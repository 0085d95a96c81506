"""The result of `recv`: bytes, with the metadata of the message."""

import copy
import gc
import pickle
import sys
import weakref
from typing import Any

import pytest

from aiofabric import Address, Message

pytestmark = pytest.mark.once

SIZES = [0, 1, 7, 8, 9, 63, 64, 65, 100_000]


@pytest.mark.parametrize("size", SIZES)
def test_it_is_bytes(size: int) -> None:
    data = bytes(n % 251 for n in range(size))
    message = Message(bytearray(data), "the sender", 2**64 - 1, 2**64 - 1)
    assert message == data
    assert data == message
    assert message != data + b"x"
    assert hash(message) == hash(data)
    assert {data: "found"}[message] == "found"
    assert isinstance(message, bytes)
    assert (len(message), bytes(message), message[:5], bytes(memoryview(message))) == (size, data, data[:5], data)
    assert type(message + b"") is bytes
    assert (message.source, message.tag, message.remote_data) == ("the sender", 2**64 - 1, 2**64 - 1)


def test_what_did_not_come_along() -> None:
    message = Message(b"alone")
    assert (message.source, message.tag, message.remote_data) == (None, 0, None)
    assert Message(b"with zero", remote_data=0).remote_data == 0


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))])
def test_copies_have_all_of_it(again: Any) -> None:
    message = again(Message(b"sealed", Address.from_ip("127.0.0.1", 9), 3, 4))
    assert type(message) is Message
    assert message == b"sealed"
    assert (message.source, message.tag, message.remote_data) == (Address.from_ip("127.0.0.1", 9), 3, 4)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), TypeError),
        ((5,), TypeError),
        (("text",), TypeError),
        ((b"", None, "tag"), TypeError),
        ((b"", None, -1), OverflowError),
        ((b"", None, 2**64), OverflowError),
        ((b"", None, 0, 2**64), OverflowError),
        ((memoryview(b"1234")[::2],), BufferError),
    ],
)
def test_what_no_message_is_made_of(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    gc.collect()
    gc.disable()  # a collection would free other references to None
    try:
        before = sys.getrefcount(None)
        for _ in range(100):
            with pytest.raises(error):
                Message(*arguments)
        assert abs(sys.getrefcount(None) - before) < 50
    finally:
        gc.enable()


def test_it_does_not_change() -> None:
    message: Any = Message(b"for good")
    for name in ("source", "tag", "remote_data", "other"):
        with pytest.raises(AttributeError):
            setattr(message, name, 1)


def test_its_sender_goes_with_it() -> None:
    class Sender: ...

    sender = Sender()
    alive = weakref.ref(sender)
    messages = [Message(b"x" * size, sender) for size in SIZES]
    del sender
    assert alive() is not None
    messages.clear()
    assert alive() is None


def test_a_ring_of_messages_is_collected() -> None:
    class Sender:
        message: Message

    sender = Sender()
    sender.message = Message(b"from", sender)
    alive = weakref.ref(sender)
    del sender
    assert alive() is not None
    gc.collect()
    assert alive() is None
