"""No listener, a listener that rejects, and a foreign program at the port: each has an error with its own class and
text.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import FabricConnectionRefusedError, FabricConnectionRejectedError, streams
from tests.fixtures.providers import CARRIERS, over

pytestmark = pytest.mark.anyio
provider = over(CARRIERS)

HERE = "127.0.0.1"


@contextlib.contextmanager
def client(answer: bytes) -> Iterator[int]:
    """A program at a port that reads a little, answers, and ends the connection."""
    with socket.create_server((HERE, 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client:
                client.recv(16)
                with contextlib.suppress(OSError):  # the peer may have left after the first bytes of the answer
                    client.sendall(answer)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(4096):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def rejecting(param: bytes) -> Callable[[aiofabric.ConnectionRequest], bool]:
    def accept(request: aiofabric.ConnectionRequest) -> bool:
        request.reject(param=param)
        return False

    return accept


async def error_of(**options: Any) -> aiofabric.FabricError:
    with anyio.fail_after(10), pytest.raises(aiofabric.FabricError) as caught:
        await aiofabric.connect(HERE, **options)
    return caught.value


@pytest.mark.parametrize("param", [b"", b"go away", bytes(256)], ids=["", "text", "full"])
async def test_rejection_has_a_class_of_its_own(provider: str, param: bytes) -> None:
    """Without data, the error said before that no listener was there."""
    async with aiofabric.listen(HERE, 0, provider=provider, accept=rejecting(param)) as listener:
        error = await error_of(service=listener.address.port, provider=provider)
    assert type(error) is FabricConnectionRejectedError
    assert error.param == param
    assert "The listener rejected the request" in str(error)
    assert ("saying 'go away'" in str(error)) == (param == b"go away")


async def test_full_backlog_and_closing_listener_reject(provider: str) -> None:
    errors: list[aiofabric.FabricError] = []

    async def connect(port: int | None) -> None:
        errors.append(await error_of(service=port, provider=provider))

    async with (
        anyio.create_task_group() as tasks,
        aiofabric.listen(HERE, 0, provider=provider, backlog=1) as listener,
    ):
        for _ in range(2):
            tasks.start_soon(connect, listener.address.port)
        while listener.statistics().requests < 2:
            await anyio.lowlevel.checkpoint()
    assert [type(error) for error in errors] == [FabricConnectionRejectedError] * 2


async def test_nobody_listens(provider: str) -> None:
    with socket.socket() as taken:
        taken.bind((HERE, 0))  # and does not listen
        error = await error_of(service=taken.getsockname()[1], provider=provider)
    assert type(error) is FabricConnectionRefusedError
    assert str(error).endswith("Check that a listener runs at that address")


async def test_peer_without_preface_may_be_told_apart_by_data_only() -> None:
    """A peer that uses libfabric itself."""
    for param, kind in ((b"", FabricConnectionRefusedError), (b"no", FabricConnectionRejectedError)):
        async with aiofabric.listen(HERE, 0, provider="tcp", accept=rejecting(param)) as listener:
            error = await error_of(service=listener.address.port, provider="tcp", preface=False)
        assert type(error) is kind
        assert getattr(error, "param", None) == param


async def test_http_server(provider: str) -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nwhat?"
    with client(answer) as port:
        error = await error_of(service=port, provider=provider)
    assert isinstance(error, aiofabric.FabricConnectionAbortedError)
    assert "uses another protocol, such as HTTP or that of another provider. Check the port, and " in str(error)


async def test_program_that_hangs_up(provider: str) -> None:
    with client(b"") as port:
        error = await error_of(service=port, provider=provider)
    assert isinstance(error, aiofabric.FabricConnectionError)
    assert not isinstance(error, FabricConnectionRefusedError)
    assert str(error).endswith("Check the port, and that both sides use aiofabric or libfabric with the same provider")


async def test_stream_listener_met_by_others(provider: str) -> None:
    async with streams.listen_stream(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.accept)
        where = (HERE, listener.address.port)
        with pytest.raises(
            FabricConnectionRejectedError, match=r"a stream of bytes \(connect_stream.*a plain connection"
        ):
            await aiofabric.connect(*where, provider=provider)
        with pytest.raises(
            FabricConnectionRejectedError, match=r"a stream of bytes .* a stream of messages \(connect_me"
        ):
            await streams.connect_messages(*where, provider=provider)
        tasks.cancel_scope.cancel()


async def test_message_listener_met_by_a_stream_client(provider: str) -> None:
    async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def serve() -> None:
            with contextlib.suppress(aiofabric.FabricConnectionError):
                async with await (await listener.accept_request()).accept() as endpoint:
                    await endpoint.recv()

        tasks.start_soon(serve)
        with pytest.raises(
            aiofabric.FabricConnectionError, match=r"a stream of bytes .*a plain connection \(connect, l"
        ):
            await streams.connect_stream(HERE, listener.address.port, provider=provider)
