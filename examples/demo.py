"""Move a file between two processes over a fabric: ``python examples/demo.py [FILE]``.

The client sends the file to the server as messages, reads it back from the server's memory, and writes it into that
memory. Every copy is compared. The exit status is non-zero if one byte differs.
"""

import argparse
import hashlib
import mmap
import multiprocessing
import os
import signal
import statistics
import struct
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

import anyio
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

import aiofabric
from aiofabric import Access, MessageEndpoint, RemoteRegion

MESSAGE = 64 * 1024  # bytes, the longest message of the default receive pool
PIECE = 1024 * 1024  # bytes of one remote read or write
THERE = b"everything is here"  # ends the client's measurement; a digest follows
PING = bytes(64)
PINGS = 2000
WARM_UP = 200
INTERRUPTED = 128 + signal.SIGINT  # exit status, as shells have it
HELLO = struct.Struct("!QQ")  # private data of the connection, both ways: pid, size of the file

Buffer: TypeAlias = "bytearray | mmap.mmap"
console = Console(highlight=False, markup=False, soft_wrap=True)


class Wrong(Exception):
    """A check failed, such as the comparison of a copy."""


EXPECTED = (Wrong, OSError, ImportError)  # these print a sentence and no traceback


# The server owns the memory that the client reads and writes.


def run_server(parent: Connection) -> None:
    try:
        anyio.run(serve, parent)
    except EXPECTED as error:
        sys.exit(f"demo, server: {error}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


async def serve(parent: Connection) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener:
        console.print(f"server: pid {os.getpid()}, listening at {listener.address}")
        parent.send(listener.address.port)
        request = await listener.accept_request()
        pid, size = HELLO.unpack(request.param)
        console.print(f"server: the client says it is pid {pid} and brings {size:,} bytes")
        async with await request.accept(param=HELLO.pack(os.getpid(), size)) as ep:
            await keep(ep, size)
            async for message in ep:  # ping-pong, until the client closes
                await ep.send(message)


async def keep(ep: MessageEndpoint, size: int) -> None:
    received, written = bytearray(size), bytearray(size)
    at = 0
    while at < size:
        at += await ep.recv_into(memoryview(received)[at:])
    await ep.send(THERE)
    await ep.send(digest(received))
    async with (
        ep.domain.register(received, access=Access.REMOTE_READ) as source,
        ep.domain.register(written, access=Access.REMOTE_WRITE) as target,
    ):
        await ep.send(source.remote.pack())
        await ep.send(target.remote.pack())
        await ep.recv()  # the client has read and written
        await ep.send(THERE)
    same("what the client wrote here", digest(received), digest(written))
    await ep.send(digest(written))


# The client moves the file and measures.


async def run_client(port: int, server: int | None, path: Path) -> None:
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    hello = HELLO.pack(os.getpid(), len(data))
    async with await aiofabric.connect("127.0.0.1", port, provider="tcp", param=hello) as ep:
        pid, _ = HELLO.unpack(ep.param)
        console.print(f"client: pid {os.getpid()}, connected to a server that says it is pid {pid}")
        console.print(f"client: provider {ep.domain.provider}, libfabric {aiofabric.library_version()}")
        if not os.getpid() != pid == server:
            raise Wrong(f"two processes were meant to talk, but pid {os.getpid()} talks to pid {pid}")
        console.print(f"{path}: {len(data):,} bytes, SHA-256 {digest(data).hex()}")
        with progress_bars() as bars:
            await send_messages(ep, data, bars)
            await read_and_write(ep, data, bars)
        await ping_pong(ep)


async def send_messages(ep: MessageEndpoint, data: Buffer, bars: Progress) -> None:
    with memoryview(data) as view, measured(bars, "messages", len(data)) as moved:
        for piece in pieces(len(data), MESSAGE):
            await ep.send(view[piece])
            moved(piece.stop - piece.start)
        same("the server's word", THERE, await ep.recv())
    same("what the server received", digest(data), await ep.recv())


async def read_and_write(ep: MessageEndpoint, data: Buffer, bars: Progress) -> None:
    source = RemoteRegion.unpack(await ep.recv())
    target = RemoteRegion.unpack(await ep.recv())
    fetched = bytearray(len(data))
    with memoryview(fetched) as view, measured(bars, "remote read", len(data)) as moved:
        for piece in pieces(len(data), PIECE):
            moved(await ep.read_into(view[piece], source[piece]))
    same("what was read from the server", digest(data), digest(fetched))
    with memoryview(data) as view, measured(bars, "remote write", len(data)) as moved:
        for piece in pieces(len(data), PIECE):
            await ep.write(view[piece], target[piece])
            moved(piece.stop - piece.start)
        await ep.send(b"done")
        same("the server's word", THERE, await ep.recv())
    same("what was written to the server", digest(data), await ep.recv())


async def ping_pong(ep: MessageEndpoint) -> None:
    times = []
    for _ in range(WARM_UP + PINGS):
        start = time.perf_counter()
        await ep.send(PING)
        same("a ping", PING, await ep.recv())
        times.append(time.perf_counter() - start)
    times = sorted(times[WARM_UP:])
    median, late = statistics.median(times) * 1e6, times[len(times) * 99 // 100] * 1e6
    console.print(f"round trip of {len(PING)} bytes: median {median:.1f} µs, 99 % within {late:.1f} µs")


# Both sides use the following functions.


def digest(data: Buffer) -> bytes:
    return hashlib.sha256(data).digest()


def same(what: str, expected: bytes, got: bytes) -> None:
    if expected != got:
        raise Wrong(f"{what} differs from what was sent")


def pieces(size: int, length: int) -> Iterator[slice]:
    for start in range(0, size, length):
        yield slice(start, min(start + length, size))


def progress_bars() -> Progress:
    what, speed = TextColumn("{task.description:12}"), TextColumn("{task.fields[speed]}")
    return Progress(what, BarColumn(), DownloadColumn(), speed, console=console)


@contextmanager
def measured(bars: Progress, what: str, size: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar while the block runs, and its throughput at the end."""
    task: TaskID = bars.add_task(what, total=size, speed="")
    start = time.perf_counter()
    yield lambda count: bars.advance(task, count)
    seconds = time.perf_counter() - start
    bars.update(task, speed=f"{size / seconds / 1e6:,.0f} MB/s")


def interpreter() -> Path:
    """Return the interpreter's binary, or its library if the binary is a stub of a few KiB."""
    program = Path(sys.executable).resolve()
    library = sysconfig.get_config_var("INSTSONAME") or ""
    candidates = [program, Path(sysconfig.get_config_var("LIBDIR") or "/", library).resolve()]
    return max((path for path in candidates if path.is_file()), key=lambda path: path.stat().st_size)


def main() -> None:
    parser = argparse.ArgumentParser(description="Move a file between two processes over a fabric.")
    default = interpreter()
    parser.add_argument("file", nargs="?", type=Path, default=default, help=f"by default {default}")
    path = parser.parse_args().file
    if not path.is_file() or path.stat().st_size == 0:
        parser.error(f"{path} is not a file with something in it")

    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    server = processes.Process(target=run_server, args=(theirs,))
    server.start()
    theirs.close()
    problem = None
    try:
        anyio.run(run_client, ours.recv(), server.pid, path)
    except EXPECTED as error:
        problem = f"demo: {error}"
    except EOFError:
        problem = "demo: the server ended before it listened"
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        server.join(5)
        server.kill()
    if server.exitcode == INTERRUPTED:  # Ctrl-C reaches both; the server may end first
        sys.exit(INTERRUPTED)
    if problem or server.exitcode != 0:
        sys.exit(problem or f"demo: the server ended with status {server.exitcode}")
    console.print("Every byte arrived, every way.")


if __name__ == "__main__":
    main()
