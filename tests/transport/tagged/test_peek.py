"""Peek, claim and discard of messages that wait for a receive, over every provider that has these."""

# Doubles: the provider refuses the receive of a claimed message.
# Privates: a message is stashed as a cancelled receive leaves it, without the race that it takes.

import errno
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from aiofabric import (
    Caps,
    Claim,
    Envelope,
    FabricError,
    Hints,
    Message,
    NotSupportedError,
    Peer,
    RdmEndpoint,
    RxAttr,
    TruncatedMessageError,
    library_version,
)
from aiofabric._core import STREAK
from aiofabric._ffi import constants, lib
from aiofabric.transport.messages.undelivered import UndeliveredMessage
from tests.fixtures.children import Child, Parent
from tests.fixtures.internals import source_of
from tests.fixtures.peers import peers, skip_without
from tests.fixtures.registrations import Registrations
from tests.fixtures.waiting import until

pytestmark = pytest.mark.anyio

CANNOT = ("shm",) if library_version() < (1, 18) else ()


@pytest.fixture(params=["tcp;ofi_rxm", "tcp", "shm", "udp;ofi_rxd", "sockets"])
def polling(request: pytest.FixtureRequest) -> str:
    """A provider that knows FI_PEEK."""
    if request.param in CANNOT:
        pytest.skip("its FI_PEEK would receive: see the test of that")
    name: str = request.param
    return name


@pytest.fixture
def claiming(polling: str) -> str:
    """A provider that keeps a claimed message until its receive."""
    if polling.endswith("ofi_rxd"):
        pytest.skip("rxd's claims crash: such a message is received at once")
    return polling


async def arrived(ep: RdmEndpoint, tag: int, *, ignore: int = 0) -> Envelope:
    """The result of `peek_tagged`, once there is a message."""
    with anyio.fail_after(10):
        while (found := await ep.peek_tagged(tag, ignore=ignore)) is None:
            await anyio.lowlevel.checkpoint()
    return found


async def everything_sent(ep: RdmEndpoint, peer: Peer, messages: dict[int, bytes]) -> None:
    for tag, data in messages.items():
        await ep.send_tagged(data, tag, to=peer)


async def test_peek_tells_of_what_has_arrived_and_takes_nothing(polling: str) -> None:
    async with peers(polling) as (one, other, there, _):
        assert await other.peek_tagged(1) is None
        await everything_sent(one, there, {1: b"short", 2: bytes(1000)})
        assert (await arrived(other, 2))[:2] == (1000, 2)
        assert (await arrived(other, 1))[:2] == (5, 1)
        assert (await arrived(other, 0, ignore=1))[:2] == (5, 1)
        assert await other.peek_tagged(4, ignore=1) is None
        assert await other.recv_tagged(1) == b"short"
        assert await other.peek_tagged(1) is None
        assert await other.recv_tagged(2) == bytes(1000)


async def test_a_claimed_message_is_nobody_elses(polling: str) -> None:
    async with peers(polling) as (one, other, there, _):
        assert await other.claim_tagged(1) is None
        await everything_sent(one, there, {1: b"first"})
        await arrived(other, 1)
        claim = await other.claim_tagged(1)
        assert claim is not None
        assert claim.envelope[:2] == (5, 1)
        await one.send_tagged(b"second", 1, to=there)
        assert await other.recv_tagged(1) == b"second"
        with pytest.raises(TruncatedMessageError):
            await claim.recv_into(bytearray(2))
        message = await claim.recv()
        assert (message, message.tag) == (b"first", 1)
        with pytest.raises(ValueError, match="received or discarded already"):
            await claim.recv()
        assert await other.peek_tagged(1) is None


async def test_a_claim_outlives_a_receive_whose_buffer_could_not_be_registered(
    claiming: str, demanding: Registrations
) -> None:
    async with peers(claiming) as (one, other, there, _):
        await everything_sent(one, there, {1: b"claimed"})
        await arrived(other, 1)
        claim = await other.claim_tagged(1)
        assert claim is not None
        demanding.refuse = errno.ENOMEM
        with pytest.raises(FabricError) as caught:
            await claim.recv()
        assert caught.value.errno == errno.ENOMEM
        registered = set(demanding.open)
        assert await claim.recv() == b"claimed"
        with pytest.raises(ValueError, match="received or discarded already"):
            await claim.recv()
        assert set(demanding.open) == registered


class Refusing:
    """fi_trecvmsg that returns an error for receives of claimed messages while ``code`` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.code = 0
        receive = lib.fi_trecvmsg

        def refuse(ep: Any, message: Any, flags: int) -> int:
            claimed = flags & constants.FI_CLAIM and not flags & constants.FI_PEEK
            rc: int = -self.code if self.code and claimed else receive(ep, message, flags)
            return rc

        monkeypatch.setattr(lib, "fi_trecvmsg", refuse)


async def test_a_claim_outlives_a_receive_that_the_provider_refused(
    claiming: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot is the message's: no other operation may get it."""
    refusing = Refusing(monkeypatch)
    async with peers(claiming) as (one, other, there, _):
        await everything_sent(one, there, {1: b"claimed"})
        await arrived(other, 1)
        claim = await other.claim_tagged(1)
        assert claim is not None
        slots = source_of(other).slots
        before = (slots.in_use, slots.quarantined)
        refusing.code = errno.EINVAL
        for _ in range(2):
            with pytest.raises(FabricError, match="fi_trecvmsg"):
                await claim.recv()
            assert (slots.in_use, slots.quarantined) == before
        refusing.code = 0
        assert await claim.recv() == b"claimed"


@pytest.mark.parametrize("call", ["recv", "recv_into", "discard"])
async def test_a_receive_of_a_claim_that_is_cancelled_before_the_provider_has_it(
    claiming: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next receive gets the message, and a discarded one is gone."""
    refusing, memory = Refusing(monkeypatch), bytearray(7)
    async with peers(claiming) as (one, other, there, _):
        await everything_sent(one, there, {1: b"claimed", 2: b"next"})
        await arrived(other, 2)
        claim = await other.claim_tagged(1)
        assert claim is not None
        refusing.code = constants.FI_EAGAIN
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(getattr(claim, call), *([memory] if call == "recv_into" else []))
            await until(lambda: other.statistics().queued)
            tasks.cancel_scope.cancel()
        refusing.code = 0
        with anyio.fail_after(10):
            if call != "discard":
                assert await other.recv_tagged(1) == b"claimed"
            assert await other.recv_tagged(2) == b"next"
        await until(lambda: not source_of(other).slots.quarantined)  # the message's slot is free again
        assert await other.peek_tagged(1) is None
    assert memory == bytes(7)  # it was the caller's again


@pytest.mark.parametrize("call", ["recv", "recv_into"])
async def test_a_receive_of_a_claim_that_is_cancelled_while_the_provider_has_it(claiming: str, call: str) -> None:
    """The next receive gets the message."""
    data = bytes(range(250)) * 4000
    memory, got = bytearray(len(data)), []
    async with peers(claiming) as (one, other, there, _), anyio.create_task_group() as sending:
        for number in range(6):
            sending.start_soon(partial(one.send_tagged, data, 1, to=there))
            await arrived(other, 1)
            claim = await other.claim_tagged(1)
            assert claim is not None

            async def receive(claim: Claim = claim) -> None:
                got.append(await (claim.recv() if call == "recv" else claim.recv_into(memory)))

            got.clear()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive)
                for _ in range(number):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            if got:
                continue
            with anyio.fail_after(10):
                try:
                    assert await claim.recv() == data  # the task was cancelled before its first step
                except ValueError:
                    assert await other.recv_tagged(1, max_bytes=len(data)) == data


@pytest.mark.parametrize("size", [0, 100, 50_000])
async def test_a_claimed_message_into_the_callers_memory(polling: str, size: int) -> None:
    data, room = bytes(range(250)) * (size // 250 + 1), bytearray(size + 10)
    async with peers(polling) as (one, other, there, _), anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: one.send_tagged(data[:size], 9, to=there))
        await arrived(other, 9)
        claim = await other.claim_tagged(9)
        assert claim is not None
        assert (await claim.recv_into(room))[:2] == (size, 9)
        assert room[:size] == data[:size]


async def test_discarded_messages_are_gone(polling: str) -> None:
    async with peers(polling) as (one, other, there, _):
        assert await other.discard_tagged(1) is None
        await everything_sent(one, there, {1: b"gone", 2: b"gone, too", 3: b"kept"})
        await arrived(other, 3)
        found = await other.discard_tagged(1)
        assert found is not None
        assert found[:2] == (4, 1)
        claim = await other.claim_tagged(2)
        assert claim is not None
        await claim.discard()
        assert await other.peek_tagged(0, ignore=3) is not None
        assert await other.recv_tagged(0, ignore=3) == b"kept"
        assert await other.peek_tagged(0, ignore=3) is None
        assert other.statistics().receives == 0


@pytest.mark.parametrize("size", [10, 100_000])
async def test_the_send_of_a_discarded_message_completes(polling: str, size: int) -> None:
    async with peers(polling) as (one, other, there, _):
        for cancelled in (False, True):
            with anyio.fail_after(10):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(partial(one.send_tagged, bytes(size), 1, to=there))
                    await arrived(other, 1)
                    claim = await other.claim_tagged(1)
                    assert claim is not None
                    async with anyio.create_task_group() as discarding:
                        discarding.start_soon(claim.discard)
                        if cancelled:
                            discarding.cancel_scope.cancel()
                    assert await other.peek_tagged(1) is None


async def test_a_cancelled_claim_loses_nothing(polling: str) -> None:
    claims: list[Claim | None] = []

    async def attempt(ep: RdmEndpoint) -> None:
        claims.append(await ep.claim_tagged(1))

    async with peers(polling) as (one, other, there, _):
        for number in range(30):
            await one.send_tagged(b"%d" % number, 1, to=there)
            await arrived(other, 1)
            claims.clear()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attempt, other)
                if number % 2:
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            with anyio.fail_after(5):
                while not claims or claims[-1] is None:
                    await attempt(other)
                    await anyio.lowlevel.checkpoint()
            assert await claims[-1].recv() == b"%d" % number


async def test_claims_that_are_cancelled_together_lose_nothing(polling: str) -> None:
    """The receive of one claimed message is not taken for one that waits for another message."""
    claims: dict[int, Claim | None] = {}

    async def attempt(ep: RdmEndpoint, tag: int) -> None:
        claims[tag] = await ep.claim_tagged(tag)

    async with peers(polling) as (one, other, there, _):
        for number in range(10):
            await everything_sent(one, there, {tag: b"%d" % tag for tag in range(4)})
            await arrived(other, 3)
            claims.clear()
            async with anyio.create_task_group() as tasks:
                for tag in range(3):
                    tasks.start_soon(attempt, other, tag)
                if number % 2:
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            with anyio.fail_after(5):
                for tag in range(4):
                    claim = claims.get(tag)
                    assert await (other.recv_tagged(tag) if claim is None else claim.recv()) == b"%d" % tag


async def close_while_a_claim_receives(_: Parent) -> None:
    async with peers("udp;ofi_rxd") as (one, other, there, _back), anyio.create_task_group() as tasks:
        await one.send_tagged(b"waits", 1, to=there)
        await arrived(other, 1)
        ended: list[str] = []

        async def claim() -> None:
            source_of(other).streak = STREAK  # the next answer lets the loop iterate
            with pytest.raises(anyio.ClosedResourceError):
                await other.claim_tagged(1)
            ended.append("claim")

        async def close() -> None:
            other.close()

        tasks.start_soon(claim)
        tasks.start_soon(close)
        await until(lambda: ended)


async def test_a_claim_over_rxd_posts_nothing_to_an_endpoint_that_was_closed_meanwhile(
    child: Callable[..., Child],
) -> None:
    skip_without("udp;ofi_rxd", Caps.MSG | Caps.TAGGED)
    await child(close_while_a_claim_receives).aresult()


async def test_a_claim_over_rxd_whose_message_another_receive_took_finds_none() -> None:
    async with (
        peers("udp;ofi_rxd", hints=Hints(rx_attr=RxAttr(size=4)), recv_count=1) as (one, other, there, _),
        anyio.create_task_group() as tasks,
    ):
        claims: list[Claim | None] = []
        got: list[Message] = []

        async def receive(tag: int) -> None:
            got.append(await other.recv_tagged(tag, max_bytes=10))

        async def claim() -> None:
            claims.append(await other.claim_tagged(1))

        for _ in range(other.info.rx_attr.size):
            tasks.start_soon(receive, 9)
        await until(lambda: other.statistics().receives >= other.info.rx_attr.size)
        await one.send_tagged(b"one", 1, to=there)
        tasks.start_soon(claim)
        await until(lambda: other.statistics().queued == 1)
        tasks.start_soon(receive, 1)
        await until(lambda: other.statistics().queued == 2)
        await one.send_tagged(b"nine", 9, to=there)  # one receive ends; first the peek, then the receive is posted
        await until(lambda: b"one" in got)
        await until(lambda: claims)
        assert claims == [None]
        tasks.cancel_scope.cancel()


async def test_a_message_that_a_cancelled_receive_left_is_seen(polling: str) -> None:
    async with peers(polling) as (one, other, there, _):
        await one.send_tagged(b"left", 1, to=there)
        await arrived(other, 1)
        claim = await other.claim_tagged(1)
        assert claim is not None
        leave_behind(other, await claim.recv())
        assert (await arrived(other, 1))[:2] == (4, 1)
        assert await other.claim_tagged(2) is None
        claim = await other.claim_tagged(1)
        assert claim is not None
        assert await other.peek_tagged(1) is None
        room = bytearray(10)
        assert (await claim.recv_into(room))[:2] == (4, 1)
        assert room[:4] == b"left"
        leave_behind(other, Message(b"to be thrown away"))
        assert await other.discard_tagged(0) is not None
        assert await other.peek_tagged(0) is None


def leave_behind(ep: RdmEndpoint, message: Message) -> None:
    """Like a cancelled receive that got a message nevertheless."""
    ep._stash.append(UndeliveredMessage(message, None, message.tag))


async def test_closing_with_a_claim_outstanding(polling: str) -> None:
    async with peers(polling) as (one, other, there, _):
        await one.send_tagged(b"never received", 1, to=there)
        await arrived(other, 1)
        claim = await other.claim_tagged(1)
        assert claim is not None
        other.close()
        with pytest.raises(anyio.ClosedResourceError):
            await claim.recv()


async def test_a_provider_that_would_receive_instead_is_not_asked() -> None:
    if not CANNOT:
        pytest.skip("every provider here knows FI_PEEK")
    async with peers("shm") as (one, other, there, _):
        await one.send_tagged(b"unharmed", 1, to=there)
        for poll in (other.peek_tagged, other.claim_tagged, other.discard_tagged):
            with pytest.raises(NotSupportedError, match="shm would take FI_PEEK for a receive"):
                await poll(1)
        assert await other.recv_tagged(1) == b"unharmed"
