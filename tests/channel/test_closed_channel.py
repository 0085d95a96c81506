"""Calls of a channel that has nothing to send, or that has ended."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.to_thread
import pytest

import aiofabric
from tests.streams.pairs import clog, over_fabric

pytestmark = pytest.mark.anyio


async def test_an_empty_post_is_sent_at_once_and_sends_nothing(provider: str) -> None:
    one, other = await over_fabric(provider)
    try:
        told: list[Any] = []
        one.post(memoryview(b""), told.append)
        assert told == [None]
        assert (one.unsent, one.statistics().frames_sent) == (0, 0)
        clog(one)
        one.post(memoryview(b"later"), lambda _: None)
        one.post(memoryview(b""), told.append)
        assert told == [None, None]
    finally:
        one.abort()
        other.abort()


async def test_every_call_of_a_closed_channel_raises_the_reason(provider: str) -> None:
    one, other = await over_fabric(provider)
    error = ConnectionAbortedError("enough")
    one.abort(error)
    other.abort()
    for call in (
        lambda: one.try_send(b"x"),
        lambda: one.post(memoryview(b"x"), lambda _: None),
        lambda: one.post(memoryview(b""), lambda _: None),
        one.shutdown_write,
        lambda: one.try_recv(1),
    ):
        with pytest.raises(ConnectionAbortedError) as caught:
            call()
        assert caught.value is error
    with anyio.fail_after(5), pytest.raises(ConnectionAbortedError, match="enough"):
        await one.wait_writable()


async def test_nothing_is_posted_after_the_end_was_announced(provider: str) -> None:
    one, other = await over_fabric(provider)
    try:
        one.shutdown_write()
        one.shutdown_write()
        with pytest.raises(anyio.ClosedResourceError, match="the end of this direction was announced"):
            one.post(memoryview(b"x"), lambda _: None)
        with pytest.raises(anyio.ClosedResourceError, match="the end of this direction was announced"):
            one.try_send(b"x")
        assert await other.recv(10) == b""
    finally:
        one.abort()
        other.abort()


@pytest.mark.parametrize("size", [1, 10_000])
async def test_another_thread_sends_nothing(provider: str, size: int) -> None:
    one, other = await over_fabric(provider)
    try:
        with pytest.raises(aiofabric.WrongThreadError):
            await anyio.to_thread.run_sync(one.try_send, bytes(size))
    finally:
        one.abort()
        other.abort()


async def test_another_thread_watches_nothing(provider: str) -> None:
    one, other = await over_fabric(provider)
    try:
        with pytest.raises(aiofabric.WrongThreadError):
            await anyio.to_thread.run_sync(one.watch, lambda: None)
    finally:
        one.abort()
        other.abort()
