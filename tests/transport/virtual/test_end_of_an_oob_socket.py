"""On every loop, an OOB socket notices its end behind the frames that came before."""

import socket
import struct

import anyio
import anyio.lowlevel
import pytest

from aiofabric.cq.loops.drivers import current_driver
from aiofabric.transport.virtual.oob_socket import Frame, OobSocket

pytestmark = pytest.mark.anyio

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close resets the connection, as it does when data was not read
FRAME = b"\xaf\x1b\x01\0\x05hello"


@pytest.mark.parametrize("frames", [1, 4000])  # 4000 frames need more reads than it makes in a row
async def test_a_reset_behind_frames_is_the_end(frames: int) -> None:
    """uvloop calls a reader once for a reset, and never again."""
    got: list[Frame] = []
    ended = anyio.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        oob_socket = OobSocket(server.accept()[0], current_driver())
        oob_socket.on_frame, oob_socket.on_end = got.append, ended.set
        peer.sendall(frames * FRAME)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        peer.close()
        with anyio.fail_after(10):
            await ended.wait()
    assert got == frames * [Frame(1, b"hello")]


async def test_a_flood_of_frames_lets_other_callbacks_run() -> None:
    others: list[int] = []
    got: list[Frame] = []
    driver = current_driver()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as peer:
        oob_socket = OobSocket(server.accept()[0], driver)

        def again(frame: Frame) -> None:
            got.append(frame)
            if len(got) < 20_000:
                peer.send(FRAME)

        oob_socket.on_frame = again
        peer.sendall(1000 * FRAME)
        with anyio.fail_after(20):
            while len(got) < 20_000:
                await anyio.lowlevel.checkpoint()
                others.append(len(got))
        oob_socket.close()
    assert len(others) > 2
