"""Datagrams: boundaries, limits, unknown peers, and multicast groups."""

# Privates: the test answers the handlers of an event queue.
# Doubles: udp reports no error event on request.

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import (
    Address,
    Caps,
    DatagramEndpoint,
    EndpointType,
    FabricError,
    Hints,
    Message,
    MessageTooLongError,
    NotSupportedError,
    OpFlags,
    Peer,
    TruncatedMessageError,
    TxAttr,
)
from aiofabric._ffi import constants
from aiofabric.cm.events import EventError
from aiofabric.cm.queue import EventQueue
from tests.fixtures.peers import skip_without

pytestmark = pytest.mark.anyio

DGRAM = EndpointType.DGRAM
GROUP = f"239.255.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"  # of no other process
CAPS = Caps.MSG | Caps.SOURCE | Caps.MULTICAST


@asynccontextmanager
async def pair(**options: Any) -> AsyncIterator[tuple[DatagramEndpoint, DatagramEndpoint, Peer, Peer]]:
    skip_without("udp", Caps.MSG, DGRAM)
    async with (
        aiofabric.open_endpoint(DGRAM, "127.0.0.1", provider="udp", **options) as one,
        aiofabric.open_endpoint(DGRAM, "127.0.0.1", provider="udp", **options) as other,
    ):
        yield one, other, await one.add_peer(other.local_address), await other.add_peer(one.local_address)


@pytest.mark.parametrize("options", [{}, {"recv_size": None}], ids=["pooled", "direct"])
async def test_each_datagram_keeps_its_boundaries(options: dict[str, Any]) -> None:
    async with pair(**options) as (one, other, there, back), anyio.create_task_group() as tasks:
        room = () if not options else (one.max_message_size,)
        got: list[Message] = []
        sizes = [0, 1, 100, one.max_inject, one.max_message_size]

        async def receive() -> None:
            while len(got) < len(sizes):
                got.append(await other.recv(*room))

        tasks.start_soon(receive)
        for size in sizes:
            await one.send(bytes([size % 251]) * size, to=there)
            await anyio.wait_all_tasks_blocked()
    assert got == [bytes([size % 251]) * size for size in sizes]
    assert [message.source for message in got] == [back] * 5


async def test_a_datagram_that_is_too_long_is_refused_before_the_provider_sees_it() -> None:
    async with pair() as (one, other, there, _):
        longest = one.max_message_size
        for data in (bytes(longest + 1), [bytes(longest), b"x"]):
            with pytest.raises(
                MessageTooLongError, match=f"{longest + 1} bytes; the provider carries at most {longest}"
            ):
                await one.send(data, to=there)
        await one.send([bytes(longest - 1), b"x"], to=there)
        assert await other.recv() == bytes(longest - 1) + b"x"


async def test_a_pool_has_room_for_every_datagram() -> None:
    """udp would cut it to the length of the receive, and say nothing."""
    async with pair(recv_size=100) as (one, other, there, _):
        await one.send(bytes(200), to=there)
        assert await other.recv() == bytes(200)
        await one.send(bytes(200), to=there)
        with pytest.raises(TruncatedMessageError) as told:
            await other.recv_into(bytearray(100))
        assert (told.value.size, told.value.limit) == (200, 100)
        assert await other.recv() == bytes(200)


async def test_one_that_does_not_fit_a_direct_receive_is_told_and_the_next_one_arrives() -> None:
    async with pair(recv_size=None) as (one, other, there, back):
        for _ in range(3):
            await one.send(bytes(200), to=there)
            await one.send(b"." * 100, to=there)
        for buffer in (bytearray(100), [bytearray(60), bytearray(40)]):
            with pytest.raises(TruncatedMessageError) as told:
                await other.recv_into(buffer)
            assert (told.value.size, told.value.limit) == (200, 100)
            assert await other.recv_into(buffer) == 100
            assert b"".join(buffer if isinstance(buffer, list) else [buffer]) == b"." * 100
        with pytest.raises(TruncatedMessageError):
            await other.recv(100)
        got = await other.recv(100)
        assert (got, got.source) == (b"." * 100, back)


@pytest.mark.parametrize("options", [{}, {"recv_size": 100}, {"recv_size": None}], ids=["pooled", "small", "direct"])
async def test_one_that_is_longer_than_the_providers_longest_is_told(options: dict[str, Any]) -> None:
    """Peers without libfabric send them. udp would cut them, and say nothing."""
    async with pair(**options) as (_, other, __, ___):
        longest = other.max_message_size
        room = () if options.get("recv_size", 1) else (longest,)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
            for size in (longest + 1, 5000, longest):
                plain.sendto(bytes(size), (other.local_address.host, other.local_address.port))
        for _ in range(2):
            with pytest.raises(TruncatedMessageError):
                await other.recv(*room)
        assert len(await other.recv(*room)) == longest


async def test_to_nobody_and_from_unknown_peers() -> None:
    async with pair() as (one, other, there, back):
        nobody = await one.add_peer("fi_sockaddr_in://127.0.0.1:9")
        for _ in range(5):
            await one.send(b"lost", to=nobody)  # which says nothing of receivers
        other.remove_peer(back)
        await one.send(b"from an unknown peer", to=there)
        got = await other.recv()
        assert (got, got.source) == (b"from an unknown peer", None)
        with pytest.raises(TypeError, match="name the peer"):
            await one.send(b"to whom?")


@pytest.fixture
def multicast() -> None:
    """Skip where the kernel has no way for multicast."""
    skip_without("udp", CAPS, DGRAM)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        member = socket.inet_aton(GROUP) + socket.inet_aton("0.0.0.0")
        try:
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            probe.sendto(b"", (GROUP, 9))
        except OSError as error:
            pytest.skip(f"no multicast on this machine: {error}")


@asynccontextmanager
async def member() -> AsyncIterator[tuple[DatagramEndpoint, str]]:
    """An endpoint that can be reached at a port of any address, and the group at that port."""
    async with aiofabric.open_endpoint(DGRAM, "0.0.0.0", provider="udp", caps=CAPS) as ep:
        yield ep, f"fi_sockaddr_in://{GROUP}:{ep.local_address.port}"


@pytest.mark.usefixtures("multicast")
async def test_a_group_is_received_while_it_is_joined() -> None:
    async with member() as (one, address):
        port = one.local_address.port
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
            kernel.sendto(b"before", (GROUP, port))
            async with one.join(address) as group:
                kernel.sendto(b"meanwhile", (GROUP, port))
                assert await one.recv() == b"meanwhile"
                await one.send(b"of a member", to=group)
                assert await one.recv() == b"of a member"
            kernel.sendto(b"afterwards", (GROUP, port))
            kernel.sendto(b"to its own address", ("127.0.0.1", port))
            assert await one.recv() == b"to its own address"


@pytest.mark.usefixtures("multicast")
async def test_a_group_receives_what_its_members_send() -> None:
    async with member() as (one, address), member() as (other, _):
        async with one.join(address) as here, other.join(address, receive=False) as there:
            await other.send(b"to all", to=there)
            assert await one.recv() == b"to all"
            await other.send([b"in ", b"pieces"], to=there)
            assert await one.recv() == b"in pieces"
            await other.send(bytes(other.max_message_size), to=there)
            assert await one.recv() == bytes(other.max_message_size)
            await one.send(b"to myself", to=here)
            assert await one.recv() == b"to myself"
        with pytest.raises(ValueError, match="MulticastGroup"):
            await other.send(b"left", to=there)


@pytest.mark.usefixtures("multicast")
async def test_a_member_that_left_receives_no_more_and_may_join_again() -> None:
    """Linux would also deliver messages of another member of this host (IP_MULTICAST_ALL), so an unknown peer sends."""
    async with member() as (one, address):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unknown:
            to = (GROUP, one.local_address.port)
            async with one.join(address):
                unknown.sendto(b"first", to)
                assert await one.recv() == b"first"
            unknown.sendto(b"not for one", to)
            async with one.join(address):
                unknown.sendto(b"third", to)
                assert await one.recv() == b"third"


@pytest.mark.usefixtures("multicast")
async def test_a_batch_posts_nothing_to_a_group_that_was_left() -> None:
    """The provider reads the group's address, which was freed."""
    async with member() as (one, address):
        async with one.join(address) as group:
            batch = one.batch(to=group)
        with pytest.raises(anyio.ClosedResourceError):
            async with batch:
                await batch.send(b"nowhere")


@pytest.mark.usefixtures("multicast")
async def test_groups_are_no_peers() -> None:
    async with member() as (one, address), one.join(address) as group:
        with pytest.raises(ValueError, match="MulticastGroup"):
            one.remove_peer(group)
        with pytest.raises(ValueError, match="MulticastGroup"):
            one.vector.lookup(group)
        with pytest.raises(ValueError, match=r"has joined .* already"):
            async with one.join(address):
                pass


@pytest.mark.usefixtures("multicast")
async def test_closing_an_endpoint_leaves_its_groups() -> None:
    async with member() as (one, address), one.join(address) as group:
        one.close()
        with pytest.raises(anyio.ClosedResourceError):
            await one.send(b"", to=group)
        with pytest.raises(anyio.ClosedResourceError):
            async with one.join(address):
                pass


@pytest.mark.usefixtures("multicast")
async def test_a_cancelled_member_leaves() -> None:
    async with member() as (one, address):
        with anyio.CancelScope() as scope:
            async with one.join(address):
                scope.cancel()
                await anyio.sleep_forever()
        async with one.join(address):
            pass


@pytest.mark.usefixtures("multicast")
async def test_a_group_is_joined_once_whatever_the_port() -> None:
    """The kernel's memberships have no port: a second one fails, and its end would end the first one."""
    async with member() as (one, address):
        host, port = Address.from_str(address).host, one.local_address.port
        assert host is not None
        assert port is not None
        other_port = Address.from_ip(host, port % 60000 + 1)
        async with one.join(address) as group:
            with pytest.raises(ValueError, match=f"has joined {host} already"):
                await one.join(other_port).__aenter__()
            await one.send(b"still there", to=group)
            assert await one.recv() == b"still there"
        async with one.join(other_port):
            pass


@pytest.mark.usefixtures("multicast")
async def test_of_two_tasks_that_join_a_group_at_once_one_is_refused() -> None:
    async with member() as (one, address):
        joined: list[bool] = []

        async def join() -> None:
            try:
                async with one.join(address):
                    joined.append(True)
                    await anyio.wait_all_tasks_blocked()
            except ValueError:
                joined.append(False)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(join)
            tasks.start_soon(join)
        assert sorted(joined) == [False, True]
        async with one.join(address) as group:
            await one.send(b"joined", to=group)
            assert await one.recv() == b"joined"


@pytest.mark.usefixtures("multicast")
async def test_joining_is_refused_with_reasons() -> None:
    async with member() as (one, _):
        with pytest.raises(ValueError, match=r"fi_sockaddr_in://127.0.0.1:9 is not a multicast address"):
            async with one.join("fi_sockaddr_in://127.0.0.1:9"):
                pass
    six = Address.from_ip("ff02::1", 9)
    async with aiofabric.open_endpoint(DGRAM, "::1", provider="udp", caps=CAPS) as ep:
        with pytest.raises(NotSupportedError, match=r"fi_join.*FI_ENOSYS.*The provider udp has no groups with such"):
            async with ep.join(six):
                pass


@pytest.mark.usefixtures("multicast")
@pytest.mark.parametrize("way", ["an error event", "no event can come"])
async def test_a_join_ends_with_an_error_if_its_event_does_not_come(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with member() as (one, address):
        woken: list[int] = []

        def dispatch(queue: EventQueue, _: int) -> None:
            for key, handler in queue._handlers.items():
                if way == "an error event":
                    handler.event_error(EventError(key, constants.FI_EIO, 0, "", b""))
                    handler.event_error(EventError(key, constants.FI_EIO, 0, "", b""))
                else:
                    woken.extend(handler.wait_failed(FabricError(constants.FI_EIO, "fi_trywait")) for _ in range(2))

        with monkeypatch.context() as patch:
            patch.setattr(EventQueue, "_dispatch", dispatch)
            with anyio.fail_after(10), pytest.raises(FabricError) as caught:
                await one.join(address).__aenter__()
        assert (caught.value.errno, caught.value.call) == (
            constants.FI_EIO,
            "fi_join" if way == "an error event" else "fi_trywait",
        )
        assert woken == ([] if way == "an error event" else [1, 0])


@pytest.mark.parametrize(("provider", "kind"), [("udp", DGRAM), ("sockets", DGRAM), ("tcp;ofi_rxm", EndpointType.RDM)])
async def test_without_the_capability_joining_is_refused_in_a_sentence(provider: str, kind: EndpointType) -> None:
    skip_without(provider, Caps.MSG, kind)
    async with aiofabric.open_endpoint(kind, "127.0.0.1", provider=provider) as ep:
        with pytest.raises(
            NotSupportedError, match=rf"FI_MULTICAST.*{provider}.*does not have it.* have it, .*: udp \(FI_EP_DGRAM\)"
        ):
            async with ep.join("fi_sockaddr_in://239.0.0.1:9"):
                pass


async def test_sending_to_groups_by_default_would_read_a_peers_number_as_a_pointer() -> None:
    hints = Hints(caps=CAPS, tx_attr=TxAttr(op_flags=OpFlags.MULTICAST))
    with pytest.raises((ValueError, aiofabric.NoProviderError)):
        async with aiofabric.open_endpoint(DGRAM, "127.0.0.1", provider="udp", hints=hints):
            pass


@pytest.mark.parametrize("waiting", [False, True], ids=["before", "meanwhile"])
async def test_what_an_abandoned_receive_got_goes_to_the_next_one(waiting: bool) -> None:
    """udp cannot cancel: the receive that was left stays posted, and takes the message."""
    got: list[bytes] = []

    async def receive(ep: DatagramEndpoint) -> None:
        got.append(await ep.recv(100))

    async with pair(recv_size=None, cancel_grace=0) as (one, other, there, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive, other)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert other.statistics().abandoned == 1
        with anyio.fail_after(10):
            for number in range(3):
                async with anyio.create_task_group() as tasks:
                    if waiting:
                        tasks.start_soon(receive, other)
                        await anyio.wait_all_tasks_blocked()
                    await one.send(b"%d" % number, to=there)
                    if not waiting:
                        tasks.start_soon(receive, other)
    assert got == [b"0", b"1", b"2"]
