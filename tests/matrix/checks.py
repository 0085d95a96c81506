"""The checks of one offer, the same for every provider. Each returns the provider's behaviour in a few words.

They run in a process of their own (``probe``). An exception of a check is the provider's refusal, in its own words.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
import numpy as np

import aiofabric
from aiofabric import (
    Access,
    AtomicOp,
    Caps,
    EndpointType,
    SharedTransmit,
    TruncatedMessageError,
)
from aiofabric._ffi import constants, ffi, lib
from aiofabric.errors import check as check_rc
from tests.fixtures.children import Child
from tests.fixtures.internals import source_of
from tests.fixtures.providers import HOST, RDMA_HOST

BOTH = Access.REMOTE_READ | Access.REMOTE_WRITE
USUAL, EMULATED = 4.0, 20.0  # seconds for an operation that a provider should do at once
TIMEOUT = EMULATED if RDMA_HOST else USUAL
SOON = 1.0  # and for one that it may never do
LARGE = 1 << 20


class Offer(NamedTuple):
    """One provider's endpoints of one type; the loop that the check runs on."""

    provider: str
    kind: EndpointType
    backend: tuple[str, dict[str, Any]]

    @property
    def node(self) -> str | None:
        return None if self.provider in ("shm", "sm2") else HOST


class Pair(NamedTuple):
    """Two endpoints of this process, and how each names the other."""

    one: Any
    other: Any
    to_other: dict[str, Any]
    to_one: dict[str, Any]


class TookItsPlace(Exception):
    """Another provider, or another type of endpoint, answered for the one that was asked for."""


def itself(offer: Offer, endpoint: Any) -> None:
    """Raise unless the endpoint is of the offer: another endpoint's behaviour says nothing about it."""
    info = endpoint.info
    found = (info.fabric_attr.prov_name, info.ep_attr.type)
    if found != (offer.provider, offer.kind):
        raise TookItsPlace(f"{found[0]} ({found[1]})")


@asynccontextmanager
async def pair(offer: Offer, caps: Caps | None = None, **options: Any) -> AsyncIterator[Pair]:
    """Connected to each other, or known to each other."""
    provider: dict[str, Any] = {"provider": offer.provider}
    if offer.kind is EndpointType.MSG:
        hints: dict[str, Any] = {} if caps is None else {"hints": aiofabric.Hints(caps=caps)}
        accepted: list[Any] = []

        async def accept(listener: aiofabric.Listener) -> None:
            accepted.append(await (await listener.accept_request()).accept(**options))

        async with aiofabric.listen(offer.node, 0, **provider, **hints) as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(accept, listener)
            active = await aiofabric.connect(listener.address, **provider, **hints, **options)
        async with active, accepted[0] as passive:
            itself(offer, active)
            yield Pair(active, passive, {}, {})
        return
    wanted: dict[str, Any] = {**provider, **({} if caps is None else {"caps": caps}), **options}
    async with (
        aiofabric.open_endpoint(offer.kind, offer.node, **wanted) as one,
        aiofabric.open_endpoint(offer.kind, offer.node, **wanted) as other,
    ):
        itself(offer, one)
        to_other, to_one = await one.add_peer(other.local_address), await other.add_peer(one.local_address)
        yield Pair(one, other, {"to": to_other}, {"to": to_one})


async def both(*work: Callable[[], Awaitable[Any]]) -> None:
    async def run(each: Callable[[], Awaitable[Any]]) -> None:
        await each()

    with anyio.fail_after(TIMEOUT):
        async with anyio.create_task_group() as tasks:
            for each in work:
                tasks.start_soon(run, each)


async def messages(offer: Offer) -> str:
    async with pair(offer) as (one, other, to, back):
        size = min(one.max_message_size, 65536)
        for data in (b"x", bytes(size)):

            async def there(data: bytes = data) -> None:
                assert await other.recv() == data

            await both(lambda data=data: one.send(data, **to), there)  # type: ignore[misc]
        await both(lambda: other.send(b"back", **back), lambda: one.recv())
    return "works"


async def tagged(offer: Offer) -> str:
    async with pair(offer, Caps.MSG | Caps.TAGGED) as (one, other, to, _):
        if not hasattr(one, "send_tagged"):
            detail = "Connections of a provider's own have no tagged messages in aiofabric"
            raise aiofabric.NotSupportedError(constants.FI_ENOSYS, "fi_tsend", detail=detail)

        async def there() -> None:
            assert (await other.recv_tagged(0x10, ignore=0xF)).tag == 0x17

        await both(lambda: one.send_tagged(b"x", 0x17, **to), there)
    return "works"


async def remote_data(offer: Offer) -> str:
    got: list[int | None] = []
    async with pair(offer) as (one, other, to, _):

        async def there() -> None:
            got.append((await other.recv()).remote_data)

        await both(lambda: one.send(b"x", remote_data=7, **to), there)
        if got != [7]:
            return f"the message comes with {got[0]} instead"
        return f"works, {8 * one.info.domain_attr.cq_data_size} bits"


async def rma(offer: Offer) -> str:
    async with pair(offer, Caps.MSG | Caps.RMA) as (one, other, to, _):
        memory = bytearray(65536)
        async with other.domain.register(memory, access=BOTH) as region:
            with anyio.fail_after(TIMEOUT):
                await one.write(b"w" * 65536, region.remote, **to)
                assert await one.read(region.remote, **to) == b"w" * 65536
    return "works"


async def atomics(offer: Offer) -> str:
    async with pair(offer, Caps.MSG | Caps.ATOMIC) as (one, other, to, _):
        memory = np.full(4, 5, np.int64)
        async with other.domain.register(memory, access=BOTH) as region:
            with anyio.fail_after(TIMEOUT):
                before = await one.fetch_atomic(AtomicOp.SUM, np.ones(4, np.int64), region.remote, **to)
            assert list(before) == [5] * 4
            assert list(memory) == [6] * 4
    return "works"


async def collectives(offer: Offer) -> str:
    caps = Caps.MSG | Caps.TAGGED | Caps.COLLECTIVE
    async with aiofabric.open_endpoint(offer.kind, offer.node, provider=offer.provider, caps=caps) as one:
        itself(offer, one)
        with anyio.fail_after(TIMEOUT):
            group = await one.join_collective([await one.add_peer(one.local_address)])
            await group.barrier()
            group.close()
    return "works"


async def multi_receive(offer: Offer) -> str:
    options = {"recv_size": 1024, "recv_count": 2, "multi_recv": 1 << 16}
    async with pair(offer, Caps.MSG | Caps.MULTI_RECV, **options) as (one, other, to, _):
        for _ in range(10):
            await both(lambda: one.send(b"x" * 100, **to), lambda: other.recv())
    return "works"


async def aliases(offer: Offer) -> str:
    async with pair(offer) as (one, other, to, _):
        with one.alias(aiofabric.OpFlags.DELIVERY_COMPLETE) as alias:
            await both(lambda: alias.send(b"x", **to), lambda: other.recv())
    return "works"


async def shared_transmit(offer: Offer) -> str:
    async with pair(offer) as (one, _, _, _):
        SharedTransmit(one.domain).close()
    return "opens"


async def descriptor(offer: Offer) -> str:
    """Ask the provider itself, without aiofabric's own choice."""
    async with pair(offer) as (one, _, _, _):
        attr, out = ffi.new("struct fi_cq_attr[2]"), ffi.new("struct fid_cq **")
        attr[0].format, attr[0].wait_obj = constants.FI_CQ_FORMAT_DATA, constants.FI_WAIT_FD
        check_rc(lib.fi_cq_open(one.domain.native, attr, out, ffi.NULL), "fi_cq_open")
        fid = ffi.cast("struct fid *", out[0])
        try:
            where = ffi.new("char[128]")
            check_rc(lib.fi_control(fid, constants.FI_GETWAIT, where), "fi_control(FI_GETWAIT)")
        finally:
            lib.fi_close(fid)
        waiting = source_of(one).waiting.value
        return "slept on" if waiting != "poll" else "handed out, but polled all the same"


async def too_long(offer: Offer) -> str:
    async with pair(offer, recv_size=64) as (one, other, to, _):
        said = ""

        async def there() -> None:
            nonlocal said
            try:
                await other.recv()
                said = "the message came cut off"
            except TruncatedMessageError:
                said = "TruncatedMessageError"

        await both(lambda: one.send(bytes(1000), **to), there)
        with anyio.move_on_after(SOON) as scope:
            try:
                await one.send(b"again", **to)
                await other.recv()
            except aiofabric.FabricError as error:
                return f"{said}; then {type(error).__name__}"
        return f"{said}; then nothing more" if scope.cancelled_caught else f"{said}; the next one arrives"


async def cancel_receive(offer: Offer) -> str:
    async with pair(offer, recv_size=None) as (one, other, to, _):
        with anyio.move_on_after(0.05):
            await other.recv(64)
        left = other.statistics().abandoned
        got: list[bytes] = []

        async def there() -> None:
            got.append(bytes(await other.recv(64)))

        await both(lambda: one.send(b"next", **to), there)
        assert got == [b"next"]
        how = "the provider gives it back" if not left else "it stays posted"
        return f"{how}; the next receive gets the message"


async def cancel_send(offer: Offer) -> str:
    async with pair(offer, recv_size=None) as (one, _, to, _):
        size = min(LARGE, one.max_message_size)
        with anyio.move_on_after(0.1) as scope:
            for _ in range(8):
                await one.send(bytes(size), **to)
        left = one.statistics()
        if not scope.cancelled_caught:
            return "nothing to cancel: sends do not wait for the peer"
        return "the message stays with the provider" if left.abandoned else "it had not been posted"


async def close_here(offer: Offer) -> str:
    """Receives in flight while their endpoint closes."""
    async with pair(offer, recv_size=None) as (_, other, _, _):
        ended: list[str] = []

        async def receive() -> None:
            try:
                await other.recv(64)
            except Exception as error:
                ended.append(type(error).__name__)

        with anyio.fail_after(TIMEOUT):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(receive)
                await anyio.wait_all_tasks_blocked()
                other.close()
        return f"all end with {', '.join(sorted(set(ended)))}" if len(ended) == 3 else "some never end"


async def live(parent: Any, provider: str, kind: str, where: Any) -> None:
    """The peer that will be killed."""
    offer = Offer(provider, EndpointType[kind], ("asyncio", {}))
    if offer.kind is EndpointType.MSG:
        async with await aiofabric.connect(*where, provider=provider) as one:
            await one.send(b"here")
            await anyio.sleep_forever()
    async with aiofabric.open_endpoint(offer.kind, offer.node, provider=provider) as one:
        to = await one.add_peer(aiofabric.Address(*where))
        await one.send(one.local_address.raw, to=to)
        await anyio.sleep_forever()


async def peer_loss(offer: Offer) -> str:
    """The peer's process is killed: the result of a waiting receive, and then of a send."""

    async def after(peer: Child, end: Any, to: dict[str, Any]) -> str:
        await anyio.to_thread.run_sync(peer.kill)
        said = []
        acts: dict[str, Callable[[], Awaitable[Any]]] = {
            "receive": end.recv,
            "send": lambda: end.send(bytes(10), **to),
        }
        for name, act in acts.items():
            try:
                with anyio.fail_after(SOON):
                    await act()
                said.append(f"a {name} ends as if nothing had happened")
            except TimeoutError as error:
                known = isinstance(error, aiofabric.FabricError)
                said.append(f"a {name} gets {type(error).__name__}" if known else f"a {name} waits")
            except Exception as error:
                said.append(f"a {name} gets {type(error).__name__}")
        return "; ".join(said)

    def start(where: Any) -> Child:
        return Child(live, offer.provider, offer.kind.name, where, backend=offer.backend)

    if offer.kind is EndpointType.MSG:
        async with aiofabric.listen(offer.node, 0, provider=offer.provider) as listener:
            peer = start((HOST, listener.address.port))
            try:
                with anyio.fail_after(2 * TIMEOUT):
                    passive = await (await listener.accept_request()).accept()
                async with passive as end:
                    itself(offer, end)
                    with anyio.fail_after(TIMEOUT):
                        await end.recv()
                    return await after(peer, end, {})
            finally:
                peer.close()
    async with aiofabric.open_endpoint(offer.kind, offer.node, provider=offer.provider) as end:
        itself(offer, end)
        peer = start((end.local_address.format, end.local_address.raw))
        try:
            with anyio.fail_after(2 * TIMEOUT):
                raw = bytes(await end.recv())
            to = await end.add_peer(aiofabric.Address(end.local_address.format, raw))
            return await after(peer, end, {"to": to})
        finally:
            peer.close()


async def virtual(offer: Offer) -> str:
    """``connect`` and ``listen`` over a provider without connections."""
    connection = offer._replace(kind=EndpointType.MSG)
    async with _listening(connection) as (one, other):
        await both(lambda: one.send(b"x"), lambda: other.recv())
        return "works, over its own connections" if one.info.ep_attr.type is EndpointType.MSG else "works, over RDM"


@asynccontextmanager
async def _listening(offer: Offer) -> AsyncIterator[tuple[Any, Any]]:
    accepted: list[Any] = []

    async def accept(listener: aiofabric.Listener) -> None:
        accepted.append(await (await listener.accept_request()).accept())

    async with (
        aiofabric.listen(HOST, 0, provider=offer.provider) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(accept, listener)
        with anyio.fail_after(TIMEOUT):
            active = await aiofabric.connect(listener.address, provider=offer.provider)
    async with active, accepted[0] as passive:
        yield active, passive


Check = Callable[[Offer], Awaitable[str]]
_ALL = (EndpointType.MSG, EndpointType.RDM, EndpointType.DGRAM)
_RDM = (EndpointType.RDM,)
_RELIABLE = (EndpointType.MSG, EndpointType.RDM)  # datagrams have no more than messages

# Name, what it asks, of which types of endpoint.
CHECKS: dict[str, tuple[Check, tuple[EndpointType, ...]]] = {
    "messages": (messages, _ALL),
    "tagged, with a mask": (tagged, _RELIABLE),
    "remote data": (remote_data, _ALL),
    "remote memory": (rma, _RELIABLE),
    "fetching atomics": (atomics, _RELIABLE),
    "collectives": (collectives, _RDM),
    "multi-receive": (multi_receive, _ALL),
    "aliases": (aliases, _ALL),
    "shared transmit": (shared_transmit, _ALL),
    "wait descriptor": (descriptor, _ALL),
    "connect and listen": (virtual, _RDM),
    "a message too long": (too_long, _ALL),
    "cancelled receive": (cancel_receive, _ALL),
    "cancelled send": (cancel_send, _ALL),
    "closing with receives": (close_here, _ALL),
    "the peer is killed": (peer_loss, _ALL),
}
