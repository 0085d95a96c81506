"""Hazard: over rxm, the receive of a large message whose sender has ended crashes the process.

rxm reads such a message from its sender when a receive takes it. The end of the connection sets the pointer to it to
NULL (rxm_conn.c, rxm_close_conn), and the read uses it (rxm_cq.c, rxm_rndv_read). aiofabric cannot know of a waiting
plain message before it posts a receive, so the state is shown here until libfabric mends it. Connections keep their
receives posted.
"""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import aiofabric
from aiofabric import Caps, EndpointType, EpAttr, FabricAttr, FabricConnectionResetError, Hints, Quirk
from aiofabric.features import quirks
from tests.fixtures.children import Child, ChildFailed, Parent
from tests.fixtures.leaks import descriptors
from tests.fixtures.peers import skip_without
from tests.fixtures.providers import HOST, RXM

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
    hints = Hints(ep_attr=EpAttr(type=EndpointType.RDM), fabric_attr=FabricAttr(prov_name=RXM))
    if Quirk.LATE_RECEIVE_CRASHES in quirks(aiofabric.getinfo(hints=hints)[0]):
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
