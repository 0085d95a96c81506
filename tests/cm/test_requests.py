"""Each connection request is answered exactly once, by one thread and loop, and never stays without an answer."""

from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

import aiofabric
from aiofabric import ConnectionRequest, FabricConnectionRefusedError, Listener
from aiofabric.cm.requests import RequestQueue
from tests.fixtures.children import run_in_child
from tests.fixtures.internals import handle_of, source_of
from tests.fixtures.providers import require


async def refusal(listener: Listener, provider: str) -> bytes:
    """The answer that a client gets."""
    with anyio.fail_after(5), pytest.raises(FabricConnectionRefusedError) as caught:
        await aiofabric.connect(listener.address, provider=provider)
    return caught.value.param


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [False, True])
async def test_accept_hook_may_reject_in_its_own_words(provider: str, answer: bool) -> None:
    def hook(request: ConnectionRequest) -> bool:
        request.reject(param=b"full")
        return answer

    async with aiofabric.listen("127.0.0.1", 0, provider=provider, accept=hook) as listener:
        assert await refusal(listener, provider) == b"full"
        assert listener.statistics().pending == 0


@pytest.mark.anyio
async def test_request_belongs_to_its_listener(provider: str) -> None:
    requests: list[ConnectionRequest] = []
    async with anyio.create_task_group() as tasks:
        async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:

            async def connect(address: Any) -> None:
                with pytest.raises(FabricConnectionRefusedError):
                    await aiofabric.connect(address, provider=provider)

            tasks.start_soon(connect, listener.address)
            requests.append(await listener.accept_request())
            with pytest.raises(aiofabric.WrongThreadError):
                await anyio.to_thread.run_sync(requests[0].reject)
        with pytest.raises(anyio.ClosedResourceError):  # closing the listener rejected it
            requests[0].reject()
        with pytest.raises(anyio.ClosedResourceError):
            await requests[0].accept()


@pytest.mark.anyio
async def test_a_request_of_a_cancelled_task_stays_the_first(provider: str) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def connect(number: bytes) -> None:
            with pytest.raises(FabricConnectionRefusedError):
                await aiofabric.connect(listener.address, provider=provider, param=number)

        for number in (b"1", b"2"):
            tasks.start_soon(connect, number)
            with anyio.fail_after(10):
                while listener.statistics().pending < int(number):  # noqa: ASYNC110
                    await anyio.sleep(0.001)
        handle = handle_of(listener)
        assert isinstance(handle, RequestQueue)
        first = handle.pending.popleft()  # as for a task that was cancelled before it could return the request
        handle.requeue(first)
        with anyio.fail_after(10):
            requests = [await listener.accept_request() for _ in range(2)]
        for request in requests:
            request.reject()
        assert [request.param for request in requests] == [b"1", b"2"]


@pytest.mark.anyio
async def test_the_task_that_waits_longest_gets_the_first_request(provider: str) -> None:
    got: list[tuple[str, bytes]] = []
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def wait(name: str) -> None:
            request = await listener.accept_request()
            got.append((name, request.param))
            request.reject()

        handle = handle_of(listener)
        assert isinstance(handle, RequestQueue)
        for name in ("first", "second"):
            waiting = len(handle.waiters)
            tasks.start_soon(wait, name)
            while len(handle.waiters) == waiting:
                await anyio.lowlevel.checkpoint()
        for number in (b"1", b"2"):
            with pytest.raises(FabricConnectionRefusedError):
                await aiofabric.connect(listener.address, provider=provider, param=number)
    assert got == [("first", b"1"), ("second", b"2")]


@pytest.mark.anyio
async def test_connections_that_are_made_or_refused_leave_no_interest_in_their_queues(provider: str) -> None:
    """A source with an interest polls a queue without a descriptor, so an idle one would cost CPU."""
    accepted: list[aiofabric.MessageEndpoint] = []
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def answer() -> None:
            (await listener.accept_request()).reject()
            accepted.append(await (await listener.accept_request()).accept())

        tasks.start_soon(answer)
        with pytest.raises(FabricConnectionRefusedError):
            await aiofabric.connect(listener.address, provider=provider)
        active = await aiofabric.connect(listener.address, provider=provider)
    (passive,) = accepted
    await active.send(b"x")
    assert await passive.recv() == b"x"
    assert (source_of(active).interest, source_of(passive).interest) == (0, 0)
    active.abort()
    passive.abort()


ACCEPT_AND_ANSWER_AGAIN = """
import anyio, sys
import aiofabric

async def main():
    async with aiofabric.listen("127.0.0.1", 0, provider=sys.argv[1]) as listener, anyio.create_task_group() as tasks:

        async def client():
            async with await aiofabric.connect(listener.address, provider=sys.argv[1]) as endpoint:
                await endpoint.send(b"works")
                await endpoint.recv()

        tasks.start_soon(client)
        request = await listener.accept_request()
        async with await request.accept() as endpoint:
            for name in sorted({*dir(request)} - {*dir(object)}):
                if name.startswith("_") or not callable(function := getattr(request, name)):
                    continue
                try:
                    answer = function(*[1] * (name == "redirect"))
                    if answer is not None:
                        await answer
                except RuntimeError as error:
                    print(name, error)
            assert await endpoint.recv() == b"works"
            await endpoint.send(b"done")

anyio.run(main)
"""


@pytest.mark.parametrize("provider", ["tcp", "shm"])
def test_no_method_answers_an_accepted_request_again(provider: str) -> None:
    require(provider)
    ended = run_in_child(ACCEPT_AND_ANSWER_AGAIN, provider)
    again = "this connection request was answered already"
    said = [f"{name} {again}" for name in ("accept", "redirect", "reject")]
    assert (ended.status, ended.out.splitlines()) == (0, said), ended.err
