"""Hazard: CPython may crash when it collects a memoryview together with its exporter (gh-77894)."""

import pytest

from aiofabric.transport.messages.pool import Pool
from tests.fixtures.children import run_in_child
from tests.fixtures.internals import handle_of
from tests.fixtures.providers import Pair


@pytest.mark.anyio
async def test_nothing_exports_the_view_of_a_pool(pair: Pair) -> None:
    async with pair() as (active, _):
        pool = handle_of(active).pool
        assert isinstance(pool, Pool)
    pool.view.release()  # BufferError: an export is left


AT_EXIT = """
    import builtins
    from aiofabric.memory import pin

    builtins.left = left = []  # collected at the very end, as an operation that is under way then
    for number in range(100):
        view = memoryview(bytearray(100 + number * 50))[:50]
        cycle = [pin(view), view, left]
        left.append(cycle if number % 2 else cycle[::-1])
"""


@pytest.mark.once
def test_pins_that_are_left_when_the_interpreter_ends() -> None:
    ended = run_in_child(AT_EXIT)
    assert ended.status == 0, ended


@pytest.mark.once
def test_pins_and_their_views_in_cycles() -> None:
    """As an exception makes them, whose traceback has both; several pins of one place among them."""
    ended = run_in_child(
        """
        import gc
        from aiofabric.memory import pin

        for number in range(20):
            view = memoryview(bytearray(100 + number * 50))[:50]
            pins, again = pin(view), pin(memoryview(view.obj)[:50])
            cycle = [pins, view] if number % 2 else [view, pins]
            cycle.append(cycle)
            other = [again]
            other.append(other)
            del cycle, other, view, pins, again
            gc.collect()
        """
    )
    assert (ended.status, ended.err) == (0, "")
