"""Connections: how they are made, refused, rejected and lost, and how each side learns of it."""

# Doubles: reports of the driver are collected; on trio they go to a log only.

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import ConnectionRequest, Domain, Listener, MessageEndpoint
from aiofabric.resource import live_handles
from tests.fixtures.internals import source_of
from tests.fixtures.peers import where
from tests.fixtures.providers import CARRIERS, HOST, Pair, kind_of, over

pytestmark = pytest.mark.anyio
provider = over(CARRIERS)

HERE = HOST


async def serve_one(listener: Listener) -> None:
    async with await (await listener.accept_request()).accept() as passive:
        await passive.send(b"welcome")
        with pytest.raises(aiofabric.FabricConnectionResetError):
            await passive.recv()


async def accept_one(listener: Listener, into: list[MessageEndpoint], **options: Any) -> None:
    into.append(await (await listener.accept_request()).accept(**options))


# -- private data


@pytest.mark.parametrize("size", [0, 1, 255, 256])
async def test_private_data_goes_both_ways(provider: str, size: int) -> None:
    question, answer = b"?" * size, b"!" * size
    async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def serve() -> None:
            request = await listener.accept_request()
            assert request.param == question
            async with await request.accept(param=answer) as passive:
                assert passive.param == b""
                await passive.recv()

        tasks.start_soon(serve)
        async with await aiofabric.connect(listener.address, provider=provider, param=question) as active:
            assert active.param == answer
            await active.send(b"done")
            with pytest.raises(aiofabric.FabricConnectionResetError):
                await active.recv()


async def test_private_data_has_a_limit_that_is_checked_first(provider: str) -> None:
    """The provider only asserts the length, or overflows."""
    async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        with pytest.raises(ValueError, match="256"):
            await aiofabric.connect(listener.address, provider=provider, param=bytes(257))

        async def serve() -> None:
            request = await listener.accept_request()
            with pytest.raises(ValueError, match="256"):
                await request.accept(param=bytes(257))
            with pytest.raises(ValueError, match="256"):
                request.reject(param=bytes(257))
            request.reject(param=b"still unanswered")

        tasks.start_soon(serve)
        with pytest.raises(aiofabric.FabricConnectionRefusedError) as caught:
            await aiofabric.connect(listener.address, provider=provider)
        assert caught.value.param == b"still unanswered"
        assert listener.statistics().requests == 1


# -- no connection


async def test_nobody_listens(provider: str) -> None:
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        address = listener.address
    with pytest.raises(ConnectionRefusedError) as caught:
        await aiofabric.connect(address, provider=provider)
    assert isinstance(caught.value, aiofabric.FabricConnectionRefusedError)
    assert caught.value.param == b""
    assert str(address.port) in str(caught.value)


@pytest.mark.parametrize("param", [b"", b"no", bytes(range(256))])
async def test_rejected_with_data(provider: str, param: bytes) -> None:
    async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def reject() -> None:
            (await listener.accept_request()).reject(param=param)

        for _ in range(3):
            tasks.start_soon(reject)
            with pytest.raises(aiofabric.FabricConnectionRefusedError) as caught:
                await aiofabric.connect(listener.address, provider=provider)
            assert caught.value.param == param
        assert listener.statistics().rejected == 3


async def test_no_provider_reaches_the_node() -> None:
    with pytest.raises(aiofabric.NoProviderError, match="no-such-provider"):
        await aiofabric.connect(HERE, 1, provider="no-such-provider")


async def test_nobody_accepts_and_the_timeout_ends(provider: str) -> None:
    async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def end_when_it_is_queued(deadline: anyio.CancelScope) -> None:
            while not listener.statistics().pending:
                await anyio.lowlevel.checkpoint()
            deadline.deadline = anyio.current_time()

        with pytest.raises(TimeoutError), anyio.fail_after(30) as scope:  # noqa: PT012 - the task gets the deadline
            tasks.start_soon(end_when_it_is_queued, scope)
            await aiofabric.connect(listener.address, provider=provider)
        # The request is still in the queue, and its accept reports that the peer has left.
        request = await listener.accept_request()
        with pytest.raises(aiofabric.FabricConnectionAbortedError):
            await request.accept()


async def test_address_in_use(provider: str) -> None:
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        with pytest.raises(OSError) as caught:
            async with aiofabric.listen(listener.address, provider=provider):
                pass
        assert "use" in str(caught.value)


# -- addresses


@pytest.mark.parametrize("node", [HERE, "localhost", None, "::1"])
async def test_nodes_to_listen_at(provider: str, node: str | None) -> None:
    async with aiofabric.listen(node, provider=provider) as listener, anyio.create_task_group() as tasks:
        port = listener.address.port
        assert port
        tasks.start_soon(serve_one, listener)
        async with await aiofabric.connect(node or HERE, str(port), provider=provider) as active:
            await active.recv()
            assert active.peer_address is not None
            assert active.peer_address.port == port


async def test_address_strings(provider: str) -> None:
    async with aiofabric.listen(f"fi_sockaddr://{HOST}:0", provider=provider) as listener:
        accepted: list[MessageEndpoint] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept_one, listener, accepted)
            active = await aiofabric.connect(str(listener.address), provider=provider)
        assert active.peer_address == listener.address
        assert active.local_address == accepted[0].peer_address
        await active.aclose()
        await accepted[0].aclose()


# -- the listener


async def test_request_is_answered_once(provider: str) -> None:
    async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def serve() -> None:
            request = await listener.accept_request()
            async with await request.accept():
                with pytest.raises(RuntimeError, match="answered"):
                    await request.accept()
                with pytest.raises(RuntimeError, match="answered"):
                    request.reject()

        tasks.start_soon(serve)
        async with await aiofabric.connect(listener.address, provider=provider) as active:
            with pytest.raises(aiofabric.FabricConnectionResetError):
                await active.recv()


async def test_closing_the_listener_leaves_accepted_endpoints_alive(provider: str) -> None:
    accepted: list[MessageEndpoint] = []
    async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(accept_one, listener, accepted)
        active = await aiofabric.connect(listener.address, provider=provider)
    async with active, accepted[0] as passive:
        for _ in range(10):
            await active.send(bytes(1000))
            await passive.send(await passive.recv())
            assert await active.recv() == bytes(1000)


async def test_closing_the_listener_refuses_who_waits_and_tells_who_listens(provider: str) -> None:
    ended = []
    async with anyio.create_task_group() as tasks:
        async with aiofabric.listen(HERE, 0, provider=provider) as listener:
            address = listener.address

            async def be_refused() -> None:
                with pytest.raises(aiofabric.FabricConnectionError):
                    await aiofabric.connect(address, provider=provider)
                ended.append("client")

            for _ in range(3):
                tasks.start_soon(be_refused)
            while listener.statistics().pending < 3:
                await anyio.lowlevel.checkpoint()
            taken = await listener.accept_request()

        with pytest.raises(ClosedResourceError):
            await taken.accept()
        with pytest.raises(ClosedResourceError):
            await listener.accept_request()

        async with aiofabric.listen(HERE, 0, provider=provider) as listener:

            async def iterate() -> None:
                async for _ in listener:
                    raise AssertionError("no client connects")
                ended.append("iteration")

            async def wait() -> None:
                with pytest.raises(ClosedResourceError):
                    await listener.accept_request()
                ended.append("waiter")

            tasks.start_soon(iterate)
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
    assert sorted(ended) == ["client"] * 3 + ["iteration", "waiter"]


async def test_listener_closes_while_a_request_is_about_to_be_taken(provider: str) -> None:
    """The request is gone after the checkpoint: the accept must not wait for ever."""
    async with anyio.create_task_group() as tasks, aiofabric.listen(HERE, 0, provider=provider) as listener:

        async def be_refused() -> None:
            with pytest.raises(aiofabric.FabricConnectionError):
                await aiofabric.connect(listener.address, provider=provider)

        async def take() -> None:
            with pytest.raises(ClosedResourceError):
                await listener.accept_request()

        tasks.start_soon(be_refused)
        while not listener.statistics().pending:
            await anyio.lowlevel.checkpoint()

        tasks.start_soon(take)
        tasks.start_soon(listener.aclose)


async def test_backlog_bounds_what_waits(provider: str) -> None:
    async with (
        aiofabric.listen(HERE, 0, provider=provider, backlog=2) as listener,
        anyio.create_task_group() as tasks,
    ):
        outcomes: list[bool] = []

        async def try_it() -> None:
            try:
                async with await aiofabric.connect(listener.address, provider=provider) as ep:
                    outcomes.append(True)
                    with pytest.raises(aiofabric.FabricConnectionResetError):
                        await ep.recv()
            except aiofabric.FabricConnectionRefusedError:
                outcomes.append(False)

        for _ in range(5):
            tasks.start_soon(try_it)
        while listener.statistics().requests < 5:
            await anyio.lowlevel.checkpoint()
        statistics = listener.statistics()
        assert (statistics.pending, statistics.overflowed, statistics.rejected) == (2, 3, 3)
        for _ in range(2):
            await (await (await listener.accept_request()).accept()).aclose()
    assert sorted(outcomes) == [False, False, False, True, True]


async def test_screen_sees_requests_first(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str | None, int]] = []

    def friends_only(request: ConnectionRequest) -> bool:
        assert request.address is not None
        endpoints = [handle for handle in live_handles() if handle.what == "MessageEndpoint"]
        seen.append((request.address.host, len(endpoints)))
        if request.param == b"crash":
            raise ValueError("the screen's own")
        return request.param == b"friend"

    reported: list[BaseException] = []
    async with (
        aiofabric.listen(HERE, 0, provider=provider, accept=friends_only) as listener,
        anyio.create_task_group() as tasks,
    ):
        monkeypatch.setattr(source_of(listener).driver, "report", lambda _, error: reported.append(error))
        for param in (b"foe", b"crash"):
            with pytest.raises(aiofabric.FabricConnectionRefusedError):
                await aiofabric.connect(listener.address, provider=provider, param=param)
        tasks.start_soon(serve_one, listener)
        async with await aiofabric.connect(listener.address, provider=provider, param=b"friend") as active:
            await active.recv()
    assert [str(e) for e in reported] == ["the screen's own"]
    assert seen == [(HERE, 1)] * 3  # the client's: none of them has an endpoint yet


async def test_accept_that_cannot_begin_refuses_the_peer(provider: str) -> None:
    """The request cannot be used again, and its peer must not wait for ever."""
    async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def serve() -> None:
            request = await listener.accept_request()
            with pytest.raises(TypeError):
                await request.accept(no_such_option=1)  # type: ignore[call-arg]
            request = await listener.accept_request()
            with pytest.raises(ValueError, match="recv_size"):
                await request.accept(recv_size=0)

        tasks.start_soon(serve)
        for _ in range(2):
            with anyio.fail_after(5), pytest.raises(aiofabric.FabricConnectionError):
                await aiofabric.connect(listener.address, provider=provider)


async def test_cancelled_accept_request_loses_none(provider: str) -> None:
    """Cancelled before, at and after the request's arrival. Another waiting task gets the request."""
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        served = 0

        async def one_client() -> None:
            async with await aiofabric.connect(listener.address, provider=provider) as active:
                with pytest.raises(aiofabric.FabricConnectionResetError):
                    await active.recv()

        for lead in range(12):
            async with anyio.create_task_group() as tasks:

                async def fickle(scope: anyio.CancelScope) -> None:
                    with scope:
                        request = await listener.accept_request()
                        await serve(request)

                async def serve(request: ConnectionRequest) -> None:
                    nonlocal served
                    with anyio.CancelScope(shield=True):
                        served += 1
                        await (await request.accept()).aclose()

                async def steady(scope: anyio.CancelScope) -> None:
                    with scope:
                        await serve(await listener.accept_request())
                        scope.cancel()

                first, second = anyio.CancelScope(), anyio.CancelScope()
                tasks.start_soon(fickle, first)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(steady, second)
                await anyio.wait_all_tasks_blocked()
                before = served
                tasks.start_soon(one_client)
                for _ in range(lead):
                    await anyio.lowlevel.checkpoint()
                first.cancel()
                with anyio.fail_after(5):
                    while served == before:
                        await anyio.lowlevel.checkpoint()
                second.cancel()


async def test_everybody_at_once(provider: str) -> None:
    count = 150
    async with aiofabric.listen(HERE, 0, provider=provider, backlog=count) as listener:

        async def echo(request: ConnectionRequest) -> None:
            async with await request.accept() as passive:
                async for message in passive:
                    await passive.send(message)

        async def client(n: int) -> None:
            async with await aiofabric.connect(listener.address, provider=provider) as active:
                await active.send(b"%d" % n)
                assert await active.recv() == b"%d" % n

        async with anyio.create_task_group() as servers:

            async def serve() -> None:
                async for request in listener:
                    servers.start_soon(echo, request)

            servers.start_soon(serve)
            async with anyio.create_task_group() as clients:
                for n in range(count):
                    clients.start_soon(client, n)
            servers.cancel_scope.cancel()


# -- the peer leaves early


async def test_peer_left_before_accept(provider: str) -> None:
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        for _ in range(5):
            async with anyio.create_task_group() as tasks:

                async def knock_and_run(scope: anyio.CancelScope) -> None:
                    with scope:
                        await aiofabric.connect(listener.address, provider=provider)

                scope = anyio.CancelScope()
                tasks.start_soon(knock_and_run, scope)
                request = await listener.accept_request()
                scope.cancel()
            with anyio.fail_after(5), pytest.raises(aiofabric.FabricConnectionAbortedError):
                await request.accept()


async def test_peer_that_sends_one_message_and_leaves_is_received(provider: str) -> None:
    """Its request, its message and its end may be read in one pass, before the accepting task runs."""
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        for n in range(50):
            async with anyio.create_task_group() as tasks:

                async def speak(n: int) -> None:
                    async with await aiofabric.connect(listener.address, provider=provider) as active:
                        await active.send(b"%d" % n)

                tasks.start_soon(speak, n)
                async with await (await listener.accept_request()).accept() as passive:
                    assert [m async for m in passive] == [b"%d" % n]


async def test_listener_that_sends_one_message_and_leaves_is_received(provider: str) -> None:
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        for n in range(50):
            async with anyio.create_task_group() as tasks:

                async def speak(n: int) -> None:
                    async with await (await listener.accept_request()).accept() as passive:
                        await passive.send(b"%d" % n)

                tasks.start_soon(speak, n)
                async with await aiofabric.connect(listener.address, provider=provider) as active:
                    assert [m async for m in active] == [b"%d" % n]
                    assert active.peer_address is not None
                    assert active.local_address is not None


async def test_domain_closes_while_somebody_connects_on_it(provider: str) -> None:
    async with aiofabric.listen(HERE, 0, provider=provider) as listener:
        hints = aiofabric.Hints(
            fabric_attr=aiofabric.FabricAttr(prov_name=provider),
            ep_attr=aiofabric.EpAttr(type=kind_of(provider)),
        )
        domain = Domain(aiofabric.getinfo(where(provider, HOST), hints=hints)[0])

        async def connect() -> None:
            with anyio.fail_after(5), pytest.raises(ClosedResourceError):
                await aiofabric.connect(listener.address, domain=domain)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connect)
            while not listener.statistics().pending:
                await anyio.lowlevel.checkpoint()
            domain.close()


# -- the end


async def test_shutdown_delivers_what_was_sent_before(pair: Pair) -> None:
    async with pair() as (active, passive), anyio.create_task_group() as tasks:

        async def leave() -> None:
            for n in range(10):
                active.send_nowait(n.to_bytes(1, "big") * 40_000)
            await active.shutdown()
            with pytest.raises(aiofabric.FabricConnectionResetError):
                await active.recv()

        tasks.start_soon(leave)
        got = [m[0] async for m in passive]
    assert got == list(range(10))


async def test_everything_is_refused_once_the_peer_is_gone(pair: Pair) -> None:
    async with pair() as (active, passive):
        with passive.domain.register(bytearray(10), access=aiofabric.Access.REMOTE_READ) as region:
            remote = region.remote
            await passive.aclose()
            with pytest.raises(aiofabric.FabricConnectionResetError):
                await active.recv()
        assert active.state == "peer gone"
        for _ in range(2):
            with pytest.raises(ConnectionResetError):
                await active.send(b"small")
            with pytest.raises(ConnectionResetError):
                await active.send(bytes(100_000))
            with pytest.raises(ConnectionResetError):
                await active.read(remote)
            with pytest.raises(ConnectionResetError):
                await active.recv()
            with pytest.raises(ConnectionResetError):
                active.try_send(b"small")
            with pytest.raises(ConnectionResetError):
                await active.shutdown()
        await active.aclose()
        await active.aclose()
        assert active.state == "closed"
        with pytest.raises(ClosedResourceError):
            await active.send(b"small")
        with pytest.raises(ClosedResourceError):
            await active.recv()
