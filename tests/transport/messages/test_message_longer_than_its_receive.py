"""Hazard: shm and sm2 copy a message above their inject size until it is complete. If the receive is too short,
fi_cq_read never returns.

So receives have an overflow area behind them (transport/messages/overflow.py). The tests run in a child: a call that
hangs there cannot be interrupted.
"""

import pytest

from aiofabric import Caps
from tests.fixtures.children import run_in_child
from tests.fixtures.peers import skip_without

CODE = """
    import sys

    import anyio
    from aiofabric import EndpointType, TruncatedMessageError, open_endpoint

    provider, size, how, early = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "True"
    ROOM = 1000

    async def main():
        options = {"provider": provider, "recv_size": ROOM if how == "pooled" else None}
        opened = [open_endpoint(EndpointType.RDM, **options) for _ in range(2)]
        with anyio.fail_after(10):
            async with opened[0] as one, opened[1] as other, anyio.create_task_group() as tasks:
                to, _ = await one.add_peer(other.local_address), await other.add_peer(one.local_address)
                room = bytearray(ROOM + 8)

                async def send(data):
                    await (one.send_tagged(data, 7, to=to) if how == "tagged" else one.send(data, to=to))

                async def receive():
                    view = memoryview(room)[:ROOM]
                    if how == "pooled":
                        return await other.recv()
                    if how == "tagged":
                        return (await other.recv_tagged_into(view, 7)).length
                    if how == "pieces":
                        return await other.recv_into([view[:10], view[10:500], view[500:]])
                    return await other.recv_into(view)

                async def cut_off():
                    try:
                        await receive()
                    except TruncatedMessageError as error:
                        assert (error.size, error.limit) == (size, ROOM), (error.size, error.limit)
                        assert room[ROOM:] == bytes(8)
                        print("cut off")

                steps = [cut_off, lambda: send(b"1" * size)]
                async with anyio.create_task_group() as both:
                    for step in steps if early else reversed(steps):
                        both.start_soon(step)
                        await anyio.wait_all_tasks_blocked()
                tasks.start_soon(send, b"2" * ROOM)
                got = await receive()
                assert got == ROOM or got == b"2" * ROOM
                assert how == "pooled" or room[:ROOM] == b"2" * ROOM
        print("done")

    anyio.run(main)
"""


@pytest.mark.parametrize("how", ["direct", "pieces", "tagged", "pooled"])
@pytest.mark.parametrize(
    ("provider", "size", "early"),
    [
        ("shm", 1001, True),
        ("shm", 5000, True),
        ("shm", 5000, False),
        ("shm", 3 << 20, False),
        ("sm2", 5000, False),
        ("sm2", 100_000, True),
    ],
)
def test_a_message_longer_than_its_receive_is_cut_off_and_told_of(
    provider: str, size: int, early: bool, how: str
) -> None:
    skip_without(provider, Caps.MSG | Caps.TAGGED)
    ended = run_in_child(CODE, provider, str(size), how, str(early))
    assert (ended.status, ended.out) == (0, "cut off\ndone\n"), ended.err
