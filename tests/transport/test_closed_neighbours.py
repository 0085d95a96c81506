"""shm reads an endpoint of its own process where it is: a send to a closed one, or its removal, ends the process."""

import pytest

from aiofabric import Caps
from tests.fixtures.children import run_in_child
from tests.fixtures.peers import skip_without

CODE = """
    import sys
    from functools import partial

    import anyio
    from aiofabric import EndpointType, FabricError, open_endpoint
    from tests.fixtures.peers import where

    provider, act = sys.argv[1:]

    def opened():
        return open_endpoint(EndpointType.RDM, where(provider), provider=provider, recv_size=None)

    async def exchange(one, other, to, back):
        with anyio.fail_after(8):
            for end, peer, to_end in ((one, other, to), (other, one, back)):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(peer.recv, 8)
                    await end.send(b"x", to=to_end)

    async def main():
        async with opened() as one:
            async with opened() as other:
                to, back = await one.add_peer(other.local_address), await other.add_peer(one.local_address)
                await exchange(one, other, to, back)
                if act == "pending":
                    with anyio.move_on_after(0.05):
                        await one.send(bytes(1 << 20), to=to)
            if act != "remove":
                sends = [partial(one.send, b"x"), partial(one.send, bytes(1 << 20)), partial(one.send_tagged, b"x", 1)]
                for send in sends:
                    with anyio.move_on_after(0.2):
                        try:
                            await send(to=to)
                        except FabricError as error:
                            print(type(error).__name__, error.detail)
            one.remove_peer(to)
            async with opened() as other:
                to, back = await one.add_peer(other.local_address), await other.add_peer(one.local_address)
                await exchange(one, other, to, back)
        print("done")

    anyio.run(main)
"""


@pytest.mark.parametrize("act", ["remove", "send", "pending"])
def test_an_endpoint_of_the_same_process_that_was_closed_ends_nothing(act: str) -> None:
    skip_without("shm", Caps.MSG | Caps.TAGGED)
    ended = run_in_child(CODE, "shm", act)
    assert (ended.status, ended.out.splitlines()[-1:]) == (0, ["done"]), ended.err
    assert ended.out.count("UnreachableError It was closed, in this process") == (0 if act == "remove" else 3)
