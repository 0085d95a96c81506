"""Promise: ``accept=`` of a listener accepts a request only if it returns True. An object that cannot be such a
function is refused.
"""

# Doubles: reports of the driver are collected; on trio they go to a log only.

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import aiofabric
from aiofabric import ConnectionRequest
from tests.fixtures.internals import source_of
from tests.fixtures.providers import CARRIERS, over

pytestmark = pytest.mark.anyio
provider = over(CARRIERS)

HERE = "127.0.0.1"


async def by_function(request: ConnectionRequest) -> bool:
    return True


class AsyncCall:
    async def __call__(self, request: ConnectionRequest) -> bool:
        return True

    async def method(self, request: ConnectionRequest) -> bool:
        return True


async def with_more(answer: bool, request: ConnectionRequest) -> bool:
    return answer


ASYNC: dict[str, Callable[[ConnectionRequest], Awaitable[bool]]] = {
    "function": by_function,
    "partial": functools.partial(with_more, True),
    "partial of a partial": functools.partial(functools.partial(with_more), True),
    "object": AsyncCall(),
    "method": AsyncCall().method,
    "partial of an object": functools.partial(AsyncCall()),
}


@pytest.mark.parametrize("predicate", ASYNC.values(), ids=ASYNC)
async def test_async_predicate_is_refused(provider: str, predicate: Any) -> None:
    """A coroutine object is true, so each of these accepted every peer."""
    with pytest.raises(TypeError, match=r"listen\(\) takes a plain function as accept=.*async.*accept_request"):
        async with aiofabric.listen(HERE, 0, provider=provider, accept=predicate):
            pass


@pytest.mark.parametrize("predicate", [True, False, "friends", ["127.0.0.1"]], ids=repr)
async def test_predicate_that_cannot_be_called_is_refused(provider: str, predicate: Any) -> None:
    with pytest.raises(TypeError, match=r"listen\(\) takes a function as accept=.*not "):
        async with aiofabric.listen(HERE, 0, provider=provider, accept=predicate):
            pass


async def outcomes(
    provider: str, predicate: Any, monkeypatch: pytest.MonkeyPatch, *, times: int = 3
) -> tuple[int, list[BaseException]]:
    """How many requests of ``times`` were rejected, and what was reported."""
    reported: list[BaseException] = []
    async with aiofabric.listen(HERE, 0, provider=provider, accept=predicate) as listener:
        monkeypatch.setattr(source_of(listener).driver, "report", lambda _, error: reported.append(error))
        for _ in range(times):
            with pytest.raises(aiofabric.FabricConnectionRefusedError):
                await aiofabric.connect(listener.address, provider=provider)
        statistics = listener.statistics()
        assert (statistics.pending, statistics.accepted) == (0, 0)
        return statistics.rejected, reported


@pytest.mark.parametrize("answer", [None, 1, 0, "no", b"", [], 1.0], ids=repr)
async def test_answer_that_is_no_bool_rejects_and_is_reported_once(
    provider: str, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    rejected, reported = await outcomes(provider, lambda request: answer, monkeypatch)
    assert rejected == 3
    (error,) = reported
    assert isinstance(error, TypeError)
    assert f"returned {answer!r}" in str(error)
    assert "True or False" in str(error)


async def test_coroutine_out_of_a_plain_function_rejects_and_is_closed(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lambda hides the async function; warnings are errors here, and a coroutine that is never awaited warns."""
    made: list[Any] = []

    def hidden(request: ConnectionRequest) -> Any:
        made.append(by_function(request))
        return made[-1]

    rejected, reported = await outcomes(provider, hidden, monkeypatch)
    assert rejected == len(made) == 3
    assert all(coroutine.cr_frame is None for coroutine in made)  # closed
    (error,) = reported
    assert "returned <coroutine object by_function" in str(error)


async def test_false_is_silent(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await outcomes(provider, lambda request: False, monkeypatch) == (3, [])


async def test_predicate_that_rejects_by_itself_may_return_nothing(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await outcomes(provider, lambda request: request.reject(param=b"full"), monkeypatch) == (3, [])
