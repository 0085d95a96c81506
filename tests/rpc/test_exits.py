"""A handler that calls sys.exit(), as argparse does, fails its call. Ctrl-C still ends the program."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.children import run_in_child

pytestmark = pytest.mark.once

KINDS = ["unary_unary", "unary_stream", "stream_unary", "stream_stream", "in_thread", "interceptor"]

PROGRAM = """
    import builtins, sys
    import anyio
    from aiofabric import rpc

    kind, error = sys.argv[1], getattr(builtins, sys.argv[2])

    handlers = {}  # logging is not configured

    def fail():
        raise error(5)

    async def one(*_):
        fail()

    async def many(*_):
        fail()
        yield b""

    async def echo(request, context):
        return request

    async def interceptor(context, proceed):
        if context.method == "/a/exit":
            fail()
        return await proceed()

    handlers["/a/echo"] = rpc.unary_unary(echo)
    handlers["/a/exit"] = {
        "unary_unary": rpc.unary_unary(one),
        "unary_stream": rpc.unary_stream(many),
        "stream_unary": rpc.stream_unary(one),
        "stream_stream": rpc.stream_stream(many),
        "in_thread": rpc.unary_unary(lambda request, context: fail()),
        "interceptor": rpc.unary_unary(echo),
    }[kind]

    async def main():
        interceptors = [interceptor] if kind == "interceptor" else []
        async with rpc.Server(handlers, interceptors=interceptors) as server:
            listener = await server.listen("127.0.0.1", 0)
            async with rpc.Channel(f"127.0.0.1:{listener.address.port}") as channel:
                try:
                    await channel.unary("/a/exit", b"", timeout=10)
                except rpc.RpcError as error:
                    print(rpc.StatusCode(error.code).name)
                print(await channel.unary("/a/echo", b"x", timeout=10))

    backend = {"trio": "trio"}.get(sys.argv[3], "asyncio")
    options = {} if backend == "trio" else {"use_uvloop": sys.argv[3] == "uvloop"}
    try:
        anyio.run(main, backend=backend, backend_options=options)
    except KeyboardInterrupt:
        print("interrupted")
"""


def run(*arguments: str) -> Any:
    return run_in_child(PROGRAM, *arguments)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_that_exits_fails_its_own_call_and_is_logged(kind: str, loop: str) -> None:
    ended = run(kind, "SystemExit", loop)
    assert ended.out == "UNKNOWN\nb'x'\n", ended.err
    assert "the handler of /a/exit failed" in ended.err


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_an_exception_of_a_handler_is_printed_before_logging_is_configured(loop: str) -> None:
    ended = run("unary_unary", "LookupError", loop)
    assert ended.out == "UNKNOWN\nb'x'\n", ended.err
    assert "the handler of /a/exit failed" in ended.err
    assert "LookupError: 5" in ended.err


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
def test_an_interrupt_in_a_handler_ends_the_program(kind: str, loop: str) -> None:
    assert run(kind, "KeyboardInterrupt", loop).out.endswith("interrupted\n")  # uvloop ends the iteration first
