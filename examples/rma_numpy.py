"""Let a peer read and write a row of a numpy array in place. The code of the owner only waits."""

import anyio
import numpy as np

import aiofabric
from aiofabric import Access, RemoteRegion

ROWS, COLUMNS = 8, 4


async def owner(listener: aiofabric.Listener) -> None:
    grid = np.arange(ROWS * COLUMNS, dtype=np.float64).reshape(ROWS, COLUMNS)
    request = await listener.accept_request()
    async with await request.accept() as ep:
        async with ep.domain.register(grid, access=Access.REMOTE_READ | Access.REMOTE_WRITE) as region:
            await ep.send(region.remote.pack())  # address, key and length of the grid
            await ep.recv()  # wait until the peer has finished
        print("the owner finds in row 3:", grid[3])


async def worker(address: aiofabric.Address) -> None:
    async with await aiofabric.connect(address) as ep:
        grid = RemoteRegion.unpack(await ep.recv())
        row = np.empty(COLUMNS)
        where = slice(3 * row.nbytes, 4 * row.nbytes)
        await ep.read_into(row, grid[where])
        print("the worker reads row 3:", row)
        await ep.write(row * 10, grid[where])
        await ep.send(b"done")


async def main() -> None:
    async with aiofabric.listen("127.0.0.1", 0) as listener, anyio.create_task_group() as tg:
        tg.start_soon(owner, listener)
        tg.start_soon(worker, listener.address)


if __name__ == "__main__":
    anyio.run(main)
