"""Hazard: the receive of a message whose sender has ended crashes the process.

Over rxm: a large message. rxm reads it from its sender when a receive takes it. The end of the connection sets the
pointer to it to NULL (rxm_conn.c, rxm_close_conn), and the read uses it (rxm_cq.c, rxm_rndv_read). aiofabric cannot
know of a waiting plain message before it posts a receive. Connections keep their receives posted.

Over tcp: a tagged message that has arrived in part before its receive. When its connection ends, tcp frees it, but it
still stands among the waiting messages (xnet_progress.c, xnet_complete_rx). Later receives find it there, and the close
frees it again. No function of libfabric tells of such a message.

The states are shown here until libfabric mends them.
"""

import ctypes
import fcntl
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import aiofabric
from aiofabric import Caps, EndpointType, FabricConnectionResetError, FabricError, Quirk
from tests.fixtures.children import Child, ChildFailed, Parent
from tests.fixtures.leaks import descriptors
from tests.fixtures.peers import quirks_of, skip_without
from tests.fixtures.providers import HOST, RXM
from tests.fixtures.waiting import until

SIZE = 1 << 20
COUNT = 3


def opened() -> Any:
    return aiofabric.open_endpoint(EndpointType.RDM, HOST, provider=RXM, recv_size=None)


async def send_all(parent: Parent, tagged: bool, address: bytes) -> None:
    async with opened() as ep, anyio.create_task_group() as tasks:
        peer = await ep.add_peer(address)
        await ep.send_tagged(b"there", 2, to=peer)
        for _ in range(COUNT):
            if tagged:
                tasks.start_soon(lambda: ep.send_tagged(bytes(SIZE), 1, to=peer))
            else:
                tasks.start_soon(lambda: ep.send(bytes(SIZE), to=peer))
        await anyio.lowlevel.checkpoint()
        await ep.send_tagged(b"all sent", 2, to=peer)
        await anyio.sleep_forever()


async def receive_late(parent: Parent, tagged: bool) -> int:
    """The number of messages that come after their sender has ended."""
    received = 0
    async with opened() as ep:
        parent.tell(ep.local_address.raw)
        for _ in range(2):
            await ep.recv_tagged(2, max_bytes=100)
        connected = set(descriptors().items())
        parent.tell("waiting")
        await parent.areceive()  # the sender has ended
        while connected <= set(descriptors().items()):  # until rxm has closed the connection
            with anyio.move_on_after(0.01):
                await ep.recv_tagged(2, max_bytes=100)
        with anyio.move_on_after(1):
            while True:
                await (ep.recv_tagged(1, max_bytes=SIZE) if tagged else ep.recv(SIZE))
                received += 1
    return received


@pytest.mark.parametrize("tagged", [True, False], ids=["tagged", "plain"])
def test_a_receive_that_comes_after_the_sender_has_ended(tagged: bool, child: Callable[..., Child]) -> None:
    """If this fails, libfabric is mended: remove the quirk for these versions."""
    skip_without(RXM, Caps.MSG | Caps.TAGGED)
    receiver = child(receive_late, tagged)
    sender = child(send_all, tagged, receiver.receive())
    assert receiver.receive() == "waiting"
    sender.kill()
    receiver.tell("ended")
    if Quirk.LATE_RECEIVE_CRASHES in quirks_of(RXM):
        with pytest.raises(ChildFailed, match="ended: signal SIGSEGV"):
            receiver.result()
    else:
        assert receiver.result() < COUNT


async def send_over_connection(parent: Parent, port: int) -> None:
    connecting = aiofabric.connect(HOST, port, provider=RXM, recv_size=SIZE)
    async with await connecting as connection, anyio.create_task_group() as tasks:
        for _ in range(COUNT):
            tasks.start_soon(connection.send, bytes(SIZE))
        await anyio.lowlevel.checkpoint()
        parent.tell("sending")


async def accept_and_receive_late(parent: Parent) -> int:
    """The number of messages that come after their sender has ended, before the end of its connection."""
    received = 0
    async with aiofabric.listen(HOST, 0, provider=RXM, recv_size=SIZE, recv_count=COUNT - 1) as listener:
        parent.tell(listener.address.port)
        async with await (await listener.accept_request()).accept() as connection:
            await parent.areceive()  # the sender has ended
            try:
                while True:
                    await connection.recv()
                    received += 1
            except FabricConnectionResetError:
                return received


def test_a_connection_ends_with_an_error_then(child: Callable[..., Child]) -> None:
    skip_without(RXM, Caps.MSG | Caps.TAGGED)
    receiver = child(accept_and_receive_late)
    sender = child(send_over_connection, receiver.receive())
    assert sender.receive() == "sending"
    sender.kill()
    receiver.tell("ended")
    assert receiver.result() < COUNT


LARGE = 64 << 20  # bytes, more than the sockets between two processes hold
_M_PERTURB = -6  # glibc's malloc.h


def opened_over_tcp() -> Any:
    caps = Caps.MSG | Caps.TAGGED
    return aiofabric.open_endpoint(EndpointType.RDM, HOST, provider="tcp", caps=caps, recv_size=None)


def unread(descriptor: int) -> int:
    """The bytes that have arrived at this socket and were not read yet."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)


async def send_in_part(parent: Parent, address: bytes) -> None:
    async with opened_over_tcp() as ep, anyio.create_task_group() as tasks:
        parent.tell(ep.local_address.raw)
        peer = await ep.add_peer(address)
        await parent.areceive()  # the other side knows this endpoint
        await ep.send_tagged(b"there", 2, to=peer)
        tasks.start_soon(lambda: ep.send_tagged(bytes(LARGE), 1, to=peer))
        await anyio.lowlevel.checkpoint()
        parent.tell("sending")
        parent.receive()  # the rest is never sent


async def receive_what_was_cut(parent: Parent) -> str:
    ctypes.CDLL(None).mallopt(_M_PERTURB, 165)  # freed memory is overwritten
    async with opened_over_tcp() as ep:
        parent.tell(ep.local_address.raw)
        await ep.add_peer(await parent.areceive())
        before = set(descriptors().items())
        parent.tell("known")
        await ep.recv_tagged(2, max_bytes=100)
        await parent.areceive()  # the sender sends no more
        connections = [number for number, _ in set(descriptors().items()) - before]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ep.recv_tagged(2, max_bytes=100))
            await until(lambda: not any(map(unread, connections)))
            parent.tell("read")
            await parent.areceive()  # the sender has ended
            await until(lambda: set(descriptors().items()) <= before)  # tcp has closed the connection
            # The next receive gets the record of this one. That of the message would be used again otherwise.
            tasks.cancel_scope.cancel()
        with anyio.move_on_after(1), suppress(FabricError):
            await ep.recv_tagged(1, max_bytes=LARGE)
    return "closed"


def test_a_receive_of_a_tagged_message_that_arrived_in_part(child: Callable[..., Child]) -> None:
    """If this fails, libfabric is mended: remove the quirk for these versions."""
    skip_without("tcp", Caps.MSG | Caps.TAGGED)
    if Quirk.CUT_MESSAGE_CRASHES not in quirks_of("tcp"):
        pytest.skip("this library keeps no tagged messages of tcp: it has them over rxm")
    receiver = child(receive_what_was_cut)
    sender = child(send_in_part, receiver.receive())
    receiver.tell(sender.receive())
    assert receiver.receive() == "known"
    sender.tell("known")
    assert sender.receive() == "sending"
    receiver.tell("sent")
    assert receiver.receive() == "read"
    sender.kill()
    receiver.tell("ended")
    with pytest.raises(ChildFailed, match=r"ended: signal (SIGSEGV|SIGABRT)"):
        receiver.result()
