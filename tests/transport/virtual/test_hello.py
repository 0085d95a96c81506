"""A hello that no aiofabric of this version writes is refused with the reason, before any of it is used."""

# Privates: the hello of one side is altered where it is made.
# Doubles: aiofabric writes no such hello, a small frame always fits into a new socket, and the kernel has a boot id.

from pathlib import Path

import anyio
import pytest

import aiofabric
from aiofabric import FabricConnectionAbortedError, FabricConnectionError
from aiofabric.transport.virtual import endpoint as endpoint_module
from aiofabric.transport.virtual.connection import ConnectionHandle
from aiofabric.transport.virtual.oob_socket import OobSocket
from aiofabric.transport.virtual.protocol import ID, Hello, host_mark
from tests.fixtures.providers import VIRTUAL, over

provider = over(VIRTUAL)

HELLO = Hello(1, 2, 3, ID, 15, 6, 255, 8, b"address", b"param")
NO_ADDRESS = b"\xff\xfe"


@pytest.mark.once
def test_the_largest_values_are_read_as_they_were_written() -> None:
    assert Hello.unpack(HELLO.pack()) == HELLO
    assert Hello.unpack(HELLO._replace(credits=1, param=b"").pack()) == HELLO._replace(credits=1, param=b"")


@pytest.mark.once
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "too short for a hello"),
        (HELLO._replace(address=b"", param=b"").pack()[:-1], "too short for a hello"),
        (b"\1" + HELLO.pack()[1:], "version 1 of this handshake, not 2"),
        (HELLO.pack() + b"x", "invalid lengths or credits"),
        (HELLO.pack()[:-1], "invalid lengths or credits"),
        (HELLO._replace(address=b"").pack(), "invalid lengths or credits"),
        (HELLO._replace(credits=0).pack(), "invalid lengths or credits"),
        (HELLO._replace(credits=256).pack(), "invalid lengths or credits"),
        (HELLO._replace(connection=ID + 1).pack(), "number is too large for a tag"),
        (HELLO._replace(pool=16).pack(), "number is too large for a tag"),
    ],
)
def test_a_hello_with_a_value_out_of_range_is_refused_with_the_reason(body: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Hello.unpack(body)


@pytest.mark.once
def test_a_kernel_without_a_boot_id_gives_every_process_the_same_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    before = host_mark()

    def missing(_: Path) -> bytes:
        raise PermissionError("not in this sandbox")

    monkeypatch.setattr(Path, "read_bytes", missing)
    assert host_mark() == host_mark() != before


class Altered:
    """Replaces the address in the hello of one side; the client writes the first one."""

    def __init__(self, side: str) -> None:
        self.sides = iter(["client", "server"])
        self.side = side
        self.write = endpoint_module._hello

    def __call__(self, handle: ConnectionHandle, param: bytes) -> Hello:
        hello = self.write(handle, param)
        return hello._replace(address=NO_ADDRESS) if next(self.sides) == self.side else hello


@pytest.mark.anyio
async def test_a_client_with_an_address_that_is_none_is_aborted(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`accept` raises no ValueError: the mistake is not the caller's."""
    monkeypatch.setattr(endpoint_module, "_hello", Altered("client"))

    async def connect() -> None:
        with pytest.raises(FabricConnectionError):  # over rxm from `connect`, which checks the fabric
            async with await aiofabric.connect(listener.address, provider=provider) as client:
                await client.recv()

    with anyio.fail_after(10):
        async with (
            aiofabric.listen("127.0.0.1", 0, provider=provider) as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(connect)
            request = await listener.accept_request()
            with pytest.raises(FabricConnectionAbortedError, match="It asked with"):
                await request.accept()


@pytest.mark.anyio
async def test_a_listener_with_an_address_that_is_none_is_left(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "_hello", Altered("server"))

    async def accept() -> None:
        async with await (await listener.accept_request()).accept() as server:
            with pytest.raises(FabricConnectionError):
                await server.recv()

    with anyio.fail_after(10):
        async with (
            aiofabric.listen("127.0.0.1", 0, provider=provider) as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(accept)
            with pytest.raises(FabricConnectionAbortedError, match="It answered with"):
                await aiofabric.connect(listener.address, provider=provider)


@pytest.mark.anyio
async def test_a_hello_that_cannot_be_sent_ends_the_attempt(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        monkeypatch.setattr(OobSocket, "send", lambda *_: False)
        with anyio.fail_after(10), pytest.raises(FabricConnectionAbortedError, match="went away before") as caught:
            await aiofabric.connect(listener.address, provider=provider)
    assert caught.value.cure == FabricConnectionAbortedError.cure  # it has another after a wait for the answer
