"""``aiofabric serve --workers`` serves one port by several processes, which are started again when they end."""

import os
import re
import signal
import socket
from collections import Counter
from pathlib import Path

import anyio
import httpx
import psutil
import pytest

from aiofabric.integrations.httpcore import FabricHTTPTransport
from tests.cli.programs import AIOFABRIC, Program, aiofabric, started
from tests.fixtures.ports import free_port

APP = """
import asyncio
import os

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        for event in ("startup", "shutdown"):
            await receive()
            if event == "shutdown":
                print("ended in good order", flush=True)
                while "HANGS" in os.environ:
                    await asyncio.sleep(1)
            await send({"type": f"lifespan.{event}.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % os.getpid()})
"""
COUNT = 2

pytestmark = [pytest.mark.long, pytest.mark.once]


@pytest.fixture(autouse=True)
def _web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "web.py").write_text(APP)
    monkeypatch.chdir(tmp_path)


async def answered(port: str, count: int = COUNT) -> Counter[int]:
    """The processes that answer clients, and how many of these each."""
    found: Counter[int] = Counter()
    for _ in range(count):
        # To load the certificates each time would take the processor from the workers that start.
        async with httpx.AsyncClient(transport=FabricHTTPTransport(provider="tcp", verify=False)) as client:
            answer = await client.get(f"http://127.0.0.1:{port}")
            found[int(answer.text)] += 1
    return found


async def until_all_serve(port: str, program: Program) -> Counter[int]:
    """Wait until so many processes answer in turn; a client may come while one of them has ended."""
    with anyio.fail_after(40):
        while program.process.poll() is None:
            try:
                found = await answered(port)
            except httpx.HTTPError:
                found = Counter()
            if len(found) == COUNT:
                return found
            await anyio.sleep(0.2)
    raise AssertionError("the server has ended")


def serving(port: str, *more: str) -> tuple[str, ...]:
    arguments = ("-p", "tcp", "-P", port, "--log-level", "warning", "--workers", str(COUNT))
    return (*AIOFABRIC, "serve", "web:app", *arguments, *more)


@pytest.mark.parametrize(("server", "number"), [("uvicorn", signal.SIGINT), ("hypercorn", signal.SIGTERM)])
def test_clients_go_to_the_workers_in_turn_until_a_signal_ends_all(server: str, number: signal.Signals) -> None:
    port = str(free_port())
    with started(*serving(port, "--server", server)) as program:
        program.listens(port)
        first = anyio.run(until_all_serve, port, program)
        assert anyio.run(answered, port, 2 * COUNT) == dict.fromkeys(first, 2)
        program.process.send_signal(number)
        said = program.end()
    assert said.status == (130 if number == signal.SIGINT else -number)
    assert said.out == "ended in good order\n" * COUNT
    assert not any(map(psutil.pid_exists, first))


def test_a_worker_that_is_killed_is_started_again() -> None:
    port = str(free_port())
    with started(*serving(port)) as program:
        program.listens(port)
        before = anyio.run(until_all_serve, port, program)
        killed = min(before)
        os.kill(killed, signal.SIGKILL)
        after = anyio.run(until_all_serve, port, program)
        assert len(set(before) & set(after)) == COUNT - 1
        program.process.terminate()
        said = program.end()
    assert "a worker has ended (exit status -9), and is started again" in said.err


def test_workers_end_when_the_process_that_listens_is_killed() -> None:
    port = str(free_port())
    with started(*serving(port)) as program:
        program.listens(port)
        workers = [psutil.Process(pid) for pid in anyio.run(until_all_serve, port, program)]
        program.process.kill()
        program.process.wait()
        with socket.create_server(("127.0.0.1", int(port))):  # no worker has the socket of the listener
            pass
        _, alive = psutil.wait_procs(workers, timeout=20)
        assert not alive


def test_a_second_signal_kills_workers_that_do_not_end() -> None:
    port = str(free_port())
    with started(*serving(port), HANGS="1") as program:
        program.listens(port)
        workers = [psutil.Process(pid) for pid in anyio.run(until_all_serve, port, program)]
        program.process.terminate()
        assert program.process.stdout is not None
        for _ in range(COUNT):
            assert program.process.stdout.readline() == "ended in good order\n"
        assert program.process.poll() is None
        program.process.terminate()
        assert program.end().status == -signal.SIGTERM
        _, alive = psutil.wait_procs(workers, timeout=20)
        assert not alive


def test_an_application_that_cannot_start_ends_all(tmp_path: Path) -> None:
    (tmp_path / "web.py").write_text("raise ArithmeticError('of the application')")
    said = aiofabric(*serving("0")[len(AIOFABRIC) :])
    assert said.status == 1
    assert said.err.startswith("aiofabric serve: web cannot be imported: ArithmeticError: of the application (")
    assert said.err.endswith("web.py, line 1)\n")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("count", ["0", "-1", "many", "1025"])
def test_a_wrong_number_of_workers_is_a_sentence(count: str) -> None:
    said = aiofabric("serve", "web:app", "--workers", count)
    assert said.status == 2
    assert re.search(rf"the number of workers must be 1 to 1024, not '{count}'", said.err)
