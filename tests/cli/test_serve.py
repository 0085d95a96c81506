"""``aiofabric serve`` runs an application of the working directory, and httpx sends requests over the fabric."""

import re
import signal
import socket
from contextlib import suppress
from pathlib import Path

import anyio
import httpx
import pytest

from aiofabric.cli.serve import SERVERS
from aiofabric.integrations.httpcore import FabricHTTPTransport
from tests.cli.programs import AIOFABRIC, Program, aiofabric, started
from tests.fixtures.ports import free_port

APP = """
import asyncio

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        for event in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{event}.complete"})
        print("ended in good order")
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"served"})

def make():
    return app

async def never_answers(scope, receive, send):
    if scope["type"] == "lifespan":
        await app(scope, receive, send)
    print("asked", flush=True)
    await asyncio.sleep(600)
"""


WAYS = [
    (["web:app"], signal.SIGINT, 130),
    (["web:make", "--factory"], signal.SIGTERM, -signal.SIGTERM),
    (["web:app", "--server", "hypercorn"], signal.SIGINT, 130),
    (["web:make", "--factory", "--server", "hypercorn"], signal.SIGTERM, -signal.SIGTERM),
]


@pytest.mark.parametrize(
    ("arguments", "number", "status"), WAYS, ids=lambda each: " ".join(each) if isinstance(each, list) else ""
)
def test_an_application_is_served_until_told_to_stop(
    arguments: list[str], number: signal.Signals, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "web.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    port = str(free_port())

    async def ask() -> str:
        async with httpx.AsyncClient(transport=FabricHTTPTransport(provider="tcp")) as client:
            return (await client.get(f"http://127.0.0.1:{port}")).text

    with started(*AIOFABRIC, "serve", *arguments, "-p", "tcp", "-P", port, "--log-level", "warning") as program:
        program.listens(port)
        assert anyio.run(ask) == "served"
        program.process.send_signal(number)
        said = program.end()
    assert (said.status, said.out, said.err) == (status, "ended in good order\n", "")


@pytest.mark.once
def test_a_second_interrupt_ends_uvicorn_during_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "web.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    port = str(free_port())

    async def ask() -> None:
        async with httpx.AsyncClient(transport=FabricHTTPTransport(provider="tcp"), timeout=None) as client:
            with pytest.raises(httpx.ReadError):
                await client.get(f"http://127.0.0.1:{port}")

    async def interrupt(program: Program) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            assert program.process.stdout is not None
            assert program.process.stderr is not None
            assert await anyio.to_thread.run_sync(program.process.stdout.readline) == "asked\n"
            program.process.send_signal(signal.SIGINT)
            while "Waiting for connections" not in await anyio.to_thread.run_sync(program.process.stderr.readline):
                assert program.process.poll() is None
            program.process.send_signal(signal.SIGINT)

    with started(*AIOFABRIC, "serve", "web:never_answers", "-p", "tcp", "-P", port) as program:
        program.listens(port)
        anyio.run(interrupt, program)
        assert program.end().status == 130


@pytest.mark.once
@pytest.mark.parametrize("name", ["nowhere_to_be_found:app", "math:nowhere_to_be_found"])
def test_an_application_that_is_not_there_is_a_sentence(name: str) -> None:
    said = aiofabric("serve", name)
    assert said.status == 1
    assert re.fullmatch("aiofabric serve: .*nowhere_to_be_found.*\n", said.err)


@pytest.mark.once
def test_what_is_no_application_is_a_sentence() -> None:
    said = aiofabric("serve", "math:pi")
    assert said.err == "aiofabric serve: math:pi is not an ASGI application: float objects cannot be called\n"
    assert said.status == 1
    said = aiofabric("serve", "web:app", "--log-level", "loud")
    assert said.status == 2
    assert "invalid choice: 'loud'" in said.err


@pytest.mark.once
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["nocolon"], "'nocolon' is not of the form module:app"),
        (["loud:app", "-p", "nosuch"], "no provider 'nosuch'; there are "),
        (["loud:app", "-P", "99999"], "a port must be 0 to 65535, not '99999'"),
        (["loud:app", "-s", "no.such.invalid"], "-s no.such.invalid: "),
        (["loud:app", "-s", "127.0.0.1:80"], "pass host and port apart"),
        (["loud:app", "-s", "192.0.2.1"], "-s 192.0.2.1 is not one of this host's addresses"),
    ],
    ids=lambda each: each[-1] if isinstance(each, list) else "",
)
def test_wrong_usage_is_told_before_the_application_is_loaded(
    flags: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loud.py").write_text("print('loaded')")
    monkeypatch.chdir(tmp_path)
    said = aiofabric("serve", *flags)
    assert (said.out, said.status) == ("", 2)
    assert words in said.err


@pytest.mark.parametrize("server", SERVERS)
def test_a_port_that_is_taken_is_a_sentence(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "web.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = aiofabric("serve", "web:app", "--server", server, "-p", "tcp", "-P", port, "--log-level", "warning")
    assert said.status == 1
    assert said.err == f"aiofabric serve: port {port} at 127.0.0.1 is in use: -P chooses another\n"


@pytest.mark.once
@pytest.mark.parametrize("server", list(SERVERS))
def test_the_start_says_who_can_connect(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "web.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    port = str(free_port())
    with started(*AIOFABRIC, "serve", "web:app", "--server", server, "-p", "tcp", "-P", port) as program:
        program.listens(port)
        with socket.create_connection(("127.0.0.1", int(port))) as curl:
            curl.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            with suppress(ConnectionResetError):
                assert curl.recv(1) == b""
        said = program.until_it_says("does not connect by libfabric, and is refused: it sent b'GET / HTTP/1.1")
        program.process.send_signal(signal.SIGINT)
        program.end()
    assert f"127.0.0.1:{port} over a fabric. Clients need aiofabric: curl and browsers get no answer" in said
