"""A listener sends a client on to another port of its host: the client's `connect` goes there, and not for ever."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import Listener
from tests.fixtures.children import Child, Parent
from tests.fixtures.providers import CARRIERS, HOST, OWN_HOST, over

pytestmark = pytest.mark.anyio
provider = over(CARRIERS)


async def redirect_all(listener: Listener, port: int) -> None:
    async for request in listener:
        request.redirect(port)


async def serve(parent: Parent, provider: str) -> None:
    async with aiofabric.listen(OWN_HOST, 0, provider=provider) as listener:
        parent.tell(listener.address.port)
        async for request in listener:
            async with await request.accept(param=b"another process") as endpoint:
                await endpoint.send(await endpoint.recv())


@pytest.mark.parametrize("form", ["host and port", "name", "address", "text"])
async def test_a_client_is_sent_on_to_another_process(provider: str, form: str, child: Callable[..., Child]) -> None:
    port = await child(serve, provider).areceive()
    async with aiofabric.listen(OWN_HOST, 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(redirect_all, listener, port)
        places: dict[str, tuple[Any, ...]] = {
            "host and port": (OWN_HOST, listener.address.port),
            "name": ("localhost" if OWN_HOST == "127.0.0.1" else OWN_HOST, listener.address.port),
            "address": (listener.address,),
            "text": (str(listener.address),),
        }
        async with await aiofabric.connect(*places[form], provider=provider) as endpoint:
            assert endpoint.param == b"another process"
            await endpoint.send(b"hello")
            assert await endpoint.recv() == b"hello"
        assert listener.statistics().rejected == 1
        tasks.cancel_scope.cancel()


async def test_listeners_that_name_each_other_end_with_an_error(provider: str) -> None:
    async with (
        aiofabric.listen(HOST, 0, provider=provider) as one,
        aiofabric.listen(HOST, 0, provider=provider) as other,
        anyio.create_task_group() as tasks,
    ):
        assert other.address.port is not None
        assert one.address.port is not None
        tasks.start_soon(redirect_all, one, other.address.port)
        tasks.start_soon(redirect_all, other, one.address.port)
        with anyio.fail_after(20), pytest.raises(aiofabric.FabricConnectionRejectedError, match="5 listeners"):
            await aiofabric.connect(one.address, provider=provider)
        tasks.cancel_scope.cancel()


async def test_nobody_at_the_other_port_is_a_refusal(provider: str) -> None:
    async with aiofabric.listen(HOST, 0, provider=provider) as gone:
        port = gone.address.port
    assert port is not None
    async with aiofabric.listen(HOST, 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(redirect_all, listener, port)
        with pytest.raises(aiofabric.FabricConnectionRefusedError) as caught:
            await aiofabric.connect(listener.address, provider=provider)
        assert str(port) in str(caught.value)
        tasks.cancel_scope.cancel()


async def test_what_is_no_port_leaves_the_request_unanswered(provider: str) -> None:
    async with aiofabric.listen(HOST, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def serve() -> None:
            request = await listener.accept_request()
            for wrong in (0, -1, 1 << 16):
                with pytest.raises(ValueError, match="1 to 65535"):
                    request.redirect(wrong)
            for odd in ("8000", 1.0, None, True):
                with pytest.raises(TypeError, match="port must be a number"):
                    request.redirect(odd)  # type: ignore[arg-type]
            assert not request.answered
            request.reject(param=b"after all")
            with pytest.raises(RuntimeError, match="answered already"):
                request.redirect(1)

        tasks.start_soon(serve)
        with pytest.raises(aiofabric.FabricConnectionRejectedError) as caught:
            await aiofabric.connect(listener.address, provider=provider)
        assert caught.value.param == b"after all"
