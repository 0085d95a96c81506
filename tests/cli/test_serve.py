"""``aiofabric serve``: an application of the working directory, asked by httpx over the fabric."""

import signal
import socket
from pathlib import Path

import anyio
import httpx
import pytest

from aiofabric.integrations.httpcore import FabricHTTPTransport
from tests.cli.programs import AIOFABRIC, aiofabric, free_port, started

APP = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"served"})

def make():
    return app
"""


@pytest.mark.parametrize("arguments", [["web:app"], ["web:make", "--factory"]], ids=["app", "factory"])
def test_an_application_is_served_until_interrupted(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "web.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    port = free_port()

    async def ask() -> str:
        async with httpx.AsyncClient(transport=FabricHTTPTransport(provider="tcp")) as client:
            return (await client.get(f"http://127.0.0.1:{port}")).text

    with started(*AIOFABRIC, "serve", *arguments, "-p", "tcp", "-P", port, "--log-level", "warning") as program:
        program.listens(port)
        assert anyio.run(ask) == "served"
        program.process.send_signal(signal.SIGINT)
        said = program.end()
    assert (said.status, said.out, said.err) == (130, "", "")


def test_an_application_that_is_not_there_is_a_sentence() -> None:
    said = aiofabric("serve", "nowhere_to_be_found:app")
    assert said.status == 1
    assert "nowhere_to_be_found" in said.err
    assert "Traceback" not in said.err


def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "web.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = aiofabric("serve", "web:app", "-p", "tcp", "-P", str(taken.getsockname()[1]), "--log-level", "warning")
    assert said.status == 1
    assert said.err.startswith("aiofabric serve: ")
    assert "Traceback" not in said.err
