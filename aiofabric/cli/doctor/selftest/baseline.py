"""libfabric's own fi_pingpong between the same two hosts, for comparison (Debian: libfabric-bin)."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiofabric
from aiofabric.cli.doctor.selftest.options import CONNECTED, DATAGRAM, CheckOptions

if TYPE_CHECKING:
    from aiofabric.cli.doctor.selftest.control import Control

__all__ = ["COMPARE", "follow_comparison", "lead_comparison"]

COMPARE = "fi_pingpong"
_LARGE = 1 << 20  # bytes
_ROUNDS, _LARGE_ROUNDS = 100, 10
_MICROSECONDS = 6  # column: half of a round trip
_TRIES, _PAUSE = 50, 0.05


async def lead_comparison(control: Control, options: CheckOptions, figures: dict[str, Any]) -> None:
    """Run fi_pingpong as a client, once for each size."""
    for size in options.sizes:
        await control.send(size=size)
        there = await control.receive()
        output = await _client(options, size, there["host"], there["port"])
        figures[str(size)] = round(2 * float(output.splitlines()[-1].split()[_MICROSECONDS]), 1)
    await control.finish()


async def _client(options: CheckOptions, size: int, host: str, port: int) -> str:
    for _ in range(_TRIES):  # its server does not say when it listens
        client = await _started(options, size, "-P", str(port), host)
        output, errors = await client.communicate()
        if client.returncode == 0:
            return output.decode()
        await asyncio.sleep(_PAUSE)
    raise ChildProcessError(f"fi_pingpong: {errors.decode().strip() or client.returncode}")


async def follow_comparison(control: Control, options: CheckOptions) -> None:
    """Run fi_pingpong as a server, once for each size."""
    while "size" in (question := await control.receive()):
        with socket.create_server((control.host, 0), family=_family(control.host)) as free:
            port = free.getsockname()[1]
        server = await _started(options, question["size"], "-B", str(port))
        try:
            await control.send(host=control.host, port=port)
            await server.wait()
        finally:
            with suppress(ProcessLookupError):
                server.kill()
    await control.finished()


async def _started(options: CheckOptions, size: int, *arguments: str) -> asyncio.subprocess.Process:
    program = shutil.which(COMPARE)
    if program is None:
        raise FileNotFoundError(f"{COMPARE} is not installed on this host")
    kind = {CONNECTED: "msg", DATAGRAM: "dgram"}.get(options.kind, "rdm")
    rounds = _ROUNDS if size < _LARGE else _LARGE_ROUNDS
    folder = str(Path(aiofabric.library_path()).parent)  # the same libfabric
    return await asyncio.create_subprocess_exec(
        program, "-p", options.provider, "-e", kind, "-S", str(size), "-I", str(rounds), *arguments,
        env=os.environ | {"LD_LIBRARY_PATH": folder},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
