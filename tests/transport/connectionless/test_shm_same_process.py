"""Hazard: shm reads the memory of an endpoint of its own process directly, and any access to a closed one ends the
process.

So a closed endpoint lingers until no other endpoint can access it (transport/connectionless/shm_same_process.py).
"""

# Doubles: the number of endpoints that may linger is lowered.
# Privates: that number is a constant of the module.

import pytest

from aiofabric import Caps, EndpointType, FabricError, open_endpoint
from aiofabric._ffi import constants
from aiofabric.transport.connectionless import shm_same_process
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
                if act != "first":  # otherwise the first send comes after the close
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


@pytest.mark.parametrize("act", ["remove", "send", "first", "pending"])
def test_an_endpoint_of_the_same_process_that_was_closed_ends_nothing(act: str) -> None:
    skip_without("shm", Caps.MSG | Caps.TAGGED)
    ended = run_in_child(CODE, "shm", act)
    assert (ended.status, ended.out.splitlines()[-1:]) == (0, ["done"]), ended.err
    assert ended.out.count("UnreachableError The endpoint was closed in this process") == (0 if act == "remove" else 3)


COMMON = """
    import sys, threading
    from contextlib import AsyncExitStack, suppress

    import anyio
    from aiofabric import EndpointType, FabricError, open_endpoint
    from aiofabric.testing import live_resources
    from aiofabric.transport.connectionless import shm_same_process
    from aiofabric.transport.workarounds.shm_names import path_of

    def opened(**options):
        return open_endpoint(EndpointType.RDM, provider="shm", **options)

    async def know(one, other):
        return await one.add_peer(other.local_address), await other.add_peer(one.local_address)

    def ended():
        assert not shm_same_process._gone, "somebody lingers though nobody is left"
        assert not live_resources(), live_resources()
        print("done")
"""


def _end(code: str, *args: str) -> None:
    skip_without("shm", Caps.MSG | Caps.TAGGED)
    ended = run_in_child(COMMON + code, *args)
    assert (ended.status, ended.out.splitlines()[-1:]) == (0, ["done"]), ended.err


LEFT = """
    SIZES = (10, 100, 1000, 5000, 1 << 20)

    async def main(both, tagged, first):
        async with AsyncExitStack() as mine, AsyncExitStack() as theirs:
            one = await mine.enter_async_context(opened(recv_size=None))
            other = await theirs.enter_async_context(opened(recv_size=None))
            to, back = await know(one, other)

            async def send(end, peer, tag):
                with suppress(FabricError, anyio.ClosedResourceError):
                    data = bytes([tag]) * SIZES[tag]
                    await (end.send_tagged(data, tag, to=peer) if tagged else end.send(data, to=peer))

            with anyio.fail_after(10):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(one.recv, 1)
                    await other.send(b"x", to=back)
                async with anyio.create_task_group() as tasks:
                    for tag in range(len(SIZES)):
                        tasks.start_soon(send, one, to, tag)
                        if both:
                            tasks.start_soon(send, other, back, tag)
                    await anyio.wait_all_tasks_blocked()
                    while one.statistics().queued or other.statistics().queued:
                        await anyio.sleep(0.001)
                    await (mine if first else theirs).aclose()
                    left = other if first else one
                    if first or both:
                        for tag, size in enumerate(SIZES):  # nothing is lost
                            got = await (left.recv_tagged(tag, max_bytes=size) if tagged else left.recv(size))
                            assert got == bytes([tag]) * size
                    async with opened():
                        pass
                    await (theirs if first else mine).aclose()

    anyio.run(main, *(arg == "True" for arg in sys.argv[1:]))
    ended()
"""


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_unread_messages_of_a_closed_endpoint_crash_nobody(both: bool, tagged: bool, first: bool) -> None:
    _end(LEFT, str(both), str(tagged), str(first))


def test_both_closed_with_messages_unread_crash_nobody() -> None:
    _end("""
    async def main():
        async with opened(recv_size=None) as one, opened(recv_size=None) as other:
            to, back = await know(one, other)
            async with anyio.create_task_group() as tasks:
                for size in (10, 1000, 5000, 1 << 20):
                    tasks.start_soon(lambda: one.send(bytes(size), to=to))
                    tasks.start_soon(lambda: other.send_tagged(bytes(size), 1, to=back))
                    await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()

    anyio.run(main)
    ended()
    """)


def test_a_region_that_a_lingering_endpoint_used_is_released_when_it_closes() -> None:
    _end("""
    import aiofabric
    from aiofabric import Access, Domain, EpAttr, FabricAttr, Hints

    hints = Hints(fabric_attr=FabricAttr(prov_name="shm"), ep_attr=EpAttr(type=EndpointType.RDM))

    async def main():
        memory = bytearray(1 << 20)
        with Domain(aiofabric.getinfo(hints=hints)[0]) as domain:
            async with opened(recv_size=None, domain=domain) as one:
                async with opened(recv_size=None, domain=domain) as other:
                    _, back = await know(one, other)
                    with domain.register(memory, access=Access.SEND) as region:
                        with anyio.move_on_after(0.2):
                            await other.send(memory, to=back)
                assert len(shm_same_process._gone) == 1
            assert not shm_same_process._gone
            assert region.closed
            memory.append(0)  # a region pins its buffer until it is deregistered

    anyio.run(main)
    ended()
    """)


def test_other_processes_do_not_find_an_endpoint_that_lingers() -> None:
    _end("""
    async def main():
        async with opened(recv_size=None) as one:
            async with opened(recv_size=None) as other:
                _, back = await know(one, other)
                with anyio.move_on_after(0.2):
                    await other.send(bytes(5000), to=back)
                path = path_of(other.local_address)
                assert path.exists()
            assert len(shm_same_process._gone) == 1
            assert not path.exists()

    anyio.run(main)
    ended()
    """)


@pytest.mark.parametrize("size", [100, 1000, 5000])
def test_who_did_not_send_first_may_answer(size: int) -> None:
    """2.5 looks for the answer at address 0."""
    _end(
        """
    async def main(size):
        async with opened() as one, opened() as other:
            to, back = await know(one, other)
            with anyio.fail_after(8):
                await one.send(b"x", to=to)
                assert await other.recv() == b"x"
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(lambda: other.send(bytes(size), to=back))
                    assert await one.recv() == bytes(size)

    anyio.run(main, int(sys.argv[1]))
    ended()
    """,
        str(size),
    )


def test_a_neighbour_in_another_thread_may_close_before_its_messages_are_read() -> None:
    _end("""
    addresses, met, closed = [], threading.Event(), threading.Event()

    async def send():
        async with opened(recv_size=None) as other:
            addresses.append(other.local_address)
            met.wait(10)
            back = await other.add_peer(addresses[1])
            with anyio.move_on_after(0.2):
                for size in (100, 1000, 5000):
                    await other.send(bytes(size), to=back)
        closed.set()

    async def main():
        thread = threading.Thread(target=anyio.run, args=(send,))
        async with opened(recv_size=None) as one:
            thread.start()
            while not addresses:
                await anyio.sleep(0.01)
            await one.add_peer(addresses[0])
            addresses.append(one.local_address)
            met.set()
            await anyio.to_thread.run_sync(closed.wait, 10)
            assert len(shm_same_process._gone) == 1
            thread.join()
            with anyio.fail_after(8):
                for size in (100, 1000, 5000):
                    assert len(await one.recv(size)) == size
        ended()

    anyio.run(main)
    """)


def test_endpoints_that_come_and_go_beside_one_that_stays_leave_nothing() -> None:
    """More than the 256 that it may know at a time."""
    _end("""
    import os

    def held():
        return len(os.listdir("/proc/self/fd")), len(open("/proc/self/maps").readlines()) // 20

    async def main():
        async with opened(recv_size=None) as one:
            for turn in range(270):
                async with opened(recv_size=None) as other:
                    to, back = await know(one, other)
                    if turn % 8 == 0 or turn > 256:
                        with anyio.fail_after(8):
                            async with anyio.create_task_group() as tasks:
                                tasks.start_soon(one.recv, 1000)
                                await other.send(bytes(1000), to=back)
                if turn % 2:
                    one.remove_peer(to)
                assert len(shm_same_process._gone) <= 5
                if turn == 20:
                    before = held()
            assert held()[0] <= before[0] and held()[1] <= before[1] + 1, (before, held())

    anyio.run(main)
    ended()
    """)


def test_too_many_closed_endpoints_with_unread_messages_are_told_of() -> None:
    _end("""
    async def main():
        async with opened(recv_size=None) as one:
            count, shm_same_process._MOST = 0, 8
            try:
                for count in range(20):
                    async with opened(recv_size=None) as other:
                        _, back = await know(one, other)
                        async with anyio.create_task_group() as tasks:
                            for size in (1000, 5000):  # 2.5 copies the second one, 1.17 the first
                                tasks.start_soon(lambda: other.send(bytes(size), to=back))
                                await anyio.wait_all_tasks_blocked()
                            while other.statistics().queued:
                                await anyio.sleep(0.001)
                            assert other.statistics().sends
                            tasks.cancel_scope.cancel()
            except FabricError as error:
                assert count == 8, count
                assert "8 closed endpoints of this process are still open internally" in str(error.detail)
            else:
                raise AssertionError("never refused")
            with anyio.fail_after(8):
                for _ in range(2 * count):
                    await one.recv(5000)
                async with opened():
                    pass

    anyio.run(main)
    ended()
    """)


def test_sm2_closes_while_its_messages_are_unread() -> None:
    """Its fi_close waits for them, and never came back."""
    skip_without("sm2", Caps.MSG)
    _end("""
    async def main():
        async with open_endpoint(EndpointType.RDM, provider="sm2", recv_size=None) as one:
            async with open_endpoint(EndpointType.RDM, provider="sm2", recv_size=None) as other:
                to, back = await know(one, other)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(other.recv, 1)
                    await one.send(b"x", to=to)
                for end, peer in ((one, to), (other, back)):
                    with anyio.move_on_after(0.1):
                        await end.send(bytes(100_000), to=peer)
            with anyio.fail_after(5):
                assert len(await one.recv(100_000)) == 100_000

    anyio.run(main)
    ended()
    """)


FORKS = """
    import os

    import anyio
    from aiofabric import EndpointType, open_endpoint
    from aiofabric.transport.connectionless import shm_same_process
    from tests.fixtures.peers import where

    def opened():
        return open_endpoint(EndpointType.RDM, where("shm"), provider="shm")

    async def main():
        async with opened() as one:
            async with opened() as other:
                to = await one.add_peer(other.local_address)
                await one.send(b"x", to=to)
            assert len(shm_same_process._gone) == 1
            pid = os.fork()
            if pid == 0:
                os._exit(len(shm_same_process._gone) + len(shm_same_process._here))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        print("done")

    anyio.run(main)
"""


def test_a_forked_child_knows_no_endpoint_of_its_parent() -> None:
    """It would end a lingering one when it opens endpoints of its own: a native call for an object that is not its."""
    skip_without("shm", Caps.MSG)
    ended = run_in_child(FORKS)
    assert (ended.status, ended.out) == (0, "done\n"), ended.err


@pytest.mark.anyio
async def test_no_endpoint_is_opened_beside_too_many_that_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without("shm", Caps.MSG)
    monkeypatch.setattr(shm_same_process, "_MOST", 0)
    with pytest.raises(FabricError, match="closed endpoints of this process are still open internally") as caught:
        await open_endpoint(EndpointType.RDM, provider="shm").__aenter__()
    assert caught.value.errno == constants.FI_ENOSPC
