"""uvicorn and Hypercorn over a fabric: lifespans, starts that fail, orderly ends."""

import asyncio
import inspect

import anyio.lowlevel
import httpx
import hypercorn
import pytest
from hypercorn.asyncio.lifespan import Lifespan
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.utils import LifespanFailureError, wrap_app

from aiofabric.integrations.httpcore import FabricHTTPTransport
from aiofabric.integrations.hypercorn import FabricServer
from tests.integrations.web import SERVERS, App, make, serving


def client(provider: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=FabricHTTPTransport(provider=provider), timeout=20)


@pytest.fixture(params=SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.asyncio
async def test_the_application_starts_before_and_ends_after_the_server(kind: str, carrier: str) -> None:
    app = App()
    async with serving(kind, app, carrier) as web, client(carrier) as http:
        assert app.lifespan == ["startup"]
        assert (await http.get(web.url)).text == "empty"
        assert app.lifespan == ["startup"]
    assert app.lifespan == ["startup", "shutdown"]


@pytest.mark.asyncio
async def test_a_request_under_way_is_answered_before_the_end(kind: str, carrier: str) -> None:
    app = App()
    async with client(carrier) as http, asyncio.timeout(20), serving(kind, app, carrier) as web:
        asking = asyncio.create_task(http.get(f"{web.url}/late"))
        await app.asked.wait()
        web.stop()
        while web.listens:
            await anyio.lowlevel.checkpoint()
        async with client(carrier) as other:
            with pytest.raises(httpx.ConnectError):
                await other.get(web.url)
        assert app.lifespan == ["startup"]
        app.answer.set()
        assert (await asking).text == "empty"
    assert app.lifespan == ["startup", "shutdown"]


@pytest.mark.asyncio
async def test_a_request_without_an_end_does_not_hold_up_the_server_s(kind: str, carrier: str) -> None:
    app = App()
    async with client(carrier) as http:
        async with serving(kind, app, carrier, grace=0.05) as web:
            asking = asyncio.create_task(http.get(f"{web.url}/late"))
            await app.asked.wait()
        assert app.lifespan == ["startup", "shutdown"]
        if kind == "hypercorn":
            with pytest.raises(httpx.TransportError):
                await asyncio.wait_for(asking, 5)
        else:
            assert (await asyncio.wait_for(asking, 5)).status_code == 500


@pytest.mark.asyncio
async def test_an_application_that_refuses_to_start(kind: str) -> None:
    server, run, _ = make(kind, App(refuses_to_start=True), "tcp")
    if kind == "hypercorn":
        with pytest.raises(LifespanFailureError):
            await run()
    else:
        await run()  # uvicorn logs it
    with pytest.raises(RuntimeError, match="before it listened"):
        await server.wait_started()


@pytest.mark.asyncio
async def test_a_server_that_cannot_listen_says_so_to_both_who_wait(kind: str) -> None:
    app = App()
    server, run, _ = make(kind, app, "tcp", host="192.0.2.1")  # an address that no host has, RFC 5737
    waiting = asyncio.create_task(server.wait_started())
    with pytest.raises(OSError, match="not one of this host's") as why:
        await run()
    with pytest.raises(RuntimeError, match="before it listened") as late:
        await waiting
    assert late.value.__cause__ is why.value
    assert app.lifespan == ["startup", "shutdown"]


@pytest.mark.asyncio
async def test_hypercorn_cancelled_ends_in_good_order(carrier: str) -> None:
    app = App()
    server, run, _ = make("hypercorn", app, carrier)
    async with client(carrier) as http:
        task = asyncio.ensure_future(run())
        await server.wait_started()
        url = "http://{}:{}".format(*server.address)
        assert (await http.get(url)).text == "empty"
        app.asked.clear()
        asking = asyncio.create_task(http.get(f"{url}/late"))
        await asyncio.wait_for(app.asked.wait(), 5)
        app.answer.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await asking).text == "empty"
    assert app.lifespan == ["startup", "shutdown"]


@pytest.mark.asyncio
async def test_hypercorn_ends_after_the_most_requests_that_it_may_serve() -> None:
    app = App()
    server = FabricServer(
        app, hypercorn.Config.from_mapping(bind="127.0.0.1:0", max_requests=3, errorlog=None), provider="tcp"
    )
    async with client("tcp") as http:
        task = asyncio.create_task(server.serve())
        await server.wait_started()
        for _ in range(4):
            await http.get("http://{}:{}".format(*server.address or ()))
        await asyncio.wait_for(task, 5)
    assert app.requests.total() == 4


@pytest.mark.asyncio
async def test_hypercorn_serves_an_application_without_a_lifespan() -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        assert isinstance(scope, dict)
        if scope["type"] == "lifespan":
            raise NotImplementedError

    server = FabricServer(app, hypercorn.Config.from_mapping(bind="127.0.0.1:0", errorlog=None), provider="tcp")
    stop = asyncio.Event()
    task = asyncio.create_task(server.serve(shutdown_trigger=stop.wait))
    await server.wait_started()
    stop.set()
    await asyncio.wait_for(task, 5)


@pytest.mark.once
@pytest.mark.parametrize(
    "settings",
    [
        {"bind": "unix:/tmp/web"},
        {"bind": "fd://3"},
        {"bind": "127.0.0.1"},
        {"bind": ["127.0.0.1:1", "127.0.0.1:2"]},
        {"bind": "127.0.0.1:1", "quic_bind": "127.0.0.1:2"},
        {"bind": "127.0.0.1:1", "insecure_bind": "127.0.0.1:2"},
    ],
    ids=str,
)
def test_hypercorn_listens_at_one_host_and_port(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="one host:port"):
        FabricServer(App(), hypercorn.Config.from_mapping(settings))


# Hypercorn has no documented way in for a listener of another kind. These four are what our worker is made of; a
# Hypercorn that changes them fails here by name, and not in a request.
USED = {
    Lifespan: ["app", "config", "loop", "lifespan_state"],
    Lifespan.handle_lifespan: ["self"],
    Lifespan.wait_for_startup: ["self"],
    Lifespan.wait_for_shutdown: ["self"],
    TCPServer: ["app", "loop", "config", "context", "state", "reader", "writer"],
    WorkerContext: ["max_requests"],
    wrap_app: ["app", "wsgi_max_body_size", "mode"],
}


@pytest.mark.once
@pytest.mark.parametrize("part", USED, ids=lambda part: part.__qualname__)
def test_what_our_worker_uses_of_hypercorn_is_there(part: object) -> None:
    assert list(inspect.signature(part).parameters) == USED[part]  # type: ignore[arg-type]


@pytest.mark.once
@pytest.mark.asyncio
async def test_the_worker_s_context_ends_it_and_tells_the_connections() -> None:
    context = WorkerContext(0)
    await context.mark_request()
    await asyncio.wait_for(context.terminate.wait(), 1)
    assert not context.terminated.is_set()
