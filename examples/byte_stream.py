"""Send and receive over a byte stream with anyio's interface. Each end closes its own direction."""

import hashlib

import anyio

from aiofabric.streams import FabricStream, connect_stream, listen_stream


async def digest(stream: FabricStream) -> None:
    """Reply with the SHA-256 of all bytes up to the end of the client's direction."""
    async with stream:
        sha = hashlib.sha256()
        async for data in stream:
            sha.update(data)
        await stream.send(sha.hexdigest().encode())


async def main() -> None:
    async with listen_stream("127.0.0.1", 0) as listener, anyio.create_task_group() as tg:
        tg.start_soon(listener.serve, digest)
        async with await connect_stream(listener.address) as stream:
            data = bytes(10_000_000)
            print(f"sending {len(data):,} bytes")
            await stream.send(data)
            await stream.send_eof()
            answer = b"".join([part async for part in stream]).decode()
        print("same digest:", answer == hashlib.sha256(data).hexdigest())
        tg.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
