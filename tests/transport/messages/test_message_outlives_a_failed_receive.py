"""Hazard: a receive has taken its message and fails before it returns it, for example because of Ctrl-C."""

# Privates: a step inside a receive is a private method.
# Doubles: Ctrl-C is made certain inside a receive.

import anyio
import pytest

from aiofabric import RdmEndpoint
from tests.fixtures.peers import peers

pytestmark = pytest.mark.anyio


async def test_it_is_the_next_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with peers("shm", recv_count=2) as (one, other, there, _):
        with anyio.fail_after(10):
            await one.send(b"first", to=there)
            with monkeypatch.context() as patched:
                patched.setattr(RdmEndpoint, "_source_of", _interrupted)
                with pytest.raises(KeyboardInterrupt):
                    await other.recv()
            for number in range(8):  # of which two would fill the pool, if the first had been lost with its buffer
                await one.send(b"%d" % number, to=there)
                assert await other.recv() == (b"%d" % (number - 1) if number else b"first")


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt
