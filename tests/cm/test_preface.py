"""The preface: the data that two aiofabric endpoints exchange in the private data of a connection."""

# Privates: the handshake has the data as it came over the wire; programs see it without the preface.

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiofabric
from aiofabric.cm.preface import MAX_PARAM, Preface, new_end_mark
from tests.fixtures.providers import HOST, Pair

WORDS = st.integers(0, (1 << 64) - 1)
PREFACES = st.builds(Preface, st.integers(0, (1 << 32) - 1), WORDS, WORDS)


@given(st.binary(max_size=MAX_PARAM), PREFACES)
def test_preface_follows_the_programs_data_where_there_is_room(param: bytes, preface: Preface) -> None:
    data = preface.follow(param)
    assert len(data) <= MAX_PARAM
    assert data.startswith(param)
    rest, theirs = Preface.split(data)
    assert rest == param
    if len(data) == len(param):
        assert theirs is None
    elif len(param) + 28 <= MAX_PARAM:
        assert theirs == preface


@given(st.binary(max_size=41), st.integers(0, 655_350), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1))
def test_a_short_form_has_the_same_values_where_there_is_little_room(
    param: bytes, heartbeat: int, max_message: int, end_mark: int
) -> None:
    data = Preface(heartbeat, max_message, end_mark).follow(param, 55)
    rest, theirs = Preface.split(data)
    assert len(data) <= 55
    assert rest == param
    assert theirs is not None
    assert (theirs.max_message, theirs.end_mark) == (max_message, end_mark)
    assert heartbeat <= theirs.heartbeat < heartbeat + 10


def test_the_short_form_says_less_rather_than_more() -> None:
    _, theirs = Preface.split(Preface(1 << 31, 1 << 40, 0).follow(b"", 14))
    assert theirs == Preface(655_350, (1 << 32) - 1, 0)
    assert Preface(0, 0, 1 << 32).follow(b"mine", 20) == b"mine"  # an end mark cannot be shortened
    assert Preface().follow(bytes(42), 55) == bytes(42)


@given(st.binary(max_size=MAX_PARAM))
def test_other_data_is_the_programs(data: bytes) -> None:
    assert Preface.split(data) == (data, None)


@given(st.binary(max_size=100), PREFACES, st.integers(0, 255))
def test_damaged_preface_never_raises(param: bytes, preface: Preface, at: int) -> None:
    data = bytearray(preface.follow(param))
    data[at % len(data)] ^= 0xFF
    rest, _ = Preface.split(bytes(data))
    assert len(rest) <= len(data)


@given(PREFACES, st.binary(max_size=20), st.integers(2, 255))
def test_later_version_may_append_fields(preface: Preface, more: bytes, version: int) -> None:
    data = preface.follow(b"mine")
    body, trailer = data[4:-8], bytearray(data[-8:])
    trailer[0] += len(more)
    trailer[1] = version
    assert Preface.split(b"mine" + body + more + trailer) == (b"mine", preface)


def test_end_marks_are_no_small_numbers() -> None:
    assert new_end_mark(0) == 0
    for size in (4, 8):
        marks = {new_end_mark(size) for _ in range(100)}
        assert len(marks) > 90
        assert all(mark >> (8 * size - 1) == 1 for mark in marks)


@pytest.mark.anyio
@pytest.mark.parametrize("size", [0, 1, 228, 229, 256])
async def test_programs_private_data_arrives_as_it_was_sent(provider: str, size: int) -> None:
    async with aiofabric.listen(HOST, 0, provider=provider) as listener:

        async def accept() -> None:
            request = await listener.accept_request()
            assert request.param == b"q" * size
            accepted.append(await request.accept(param=b"a" * size))

        accepted: list[aiofabric.MessageEndpoint] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            active = await aiofabric.connect(listener.address, provider=provider, param=b"q" * size)
        async with active, accepted[0]:
            assert active.param == b"a" * size
            await active.send(b"x" * 100)
            assert len(await accepted[0].recv()) == 100


@pytest.mark.anyio
@pytest.mark.parametrize("sides", [("preface", "none"), ("none", "preface"), ("none", "none")])
async def test_peer_without_aiofabric_keeps_working(pair: Pair, sides: tuple[str, str]) -> None:
    """Its end has no message, so iteration never takes it for an orderly end."""
    options: list[dict[str, Any]] = [{"preface": side == "preface"} for side in sides]
    async with pair(accepting=options[0], **options[1]) as (active, passive):
        await active.send(b"ping")
        assert await passive.recv() == b"ping"
        await passive.send(b"pong")
        assert await active.recv() == b"pong"
        await active.aclose()
        with pytest.raises(aiofabric.FabricConnectionResetError) as caught:
            async for _ in passive:
                pass
        assert type(caught.value) is aiofabric.FabricConnectionResetError


@pytest.mark.anyio
async def test_listener_without_a_preface_from_the_client_sends_none(provider: str) -> None:
    """A client that does not use aiofabric gets the program's private data and nothing else."""
    async with aiofabric.listen(HOST, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def accept() -> None:
            endpoints.append(await (await listener.accept_request()).accept(param=b"mine"))

        endpoints: list[aiofabric.MessageEndpoint] = []
        tasks.start_soon(accept)
        active = await aiofabric.connect(listener.address, provider=provider, preface=False)
        assert active._handshake.param == b"mine"  # as it came over the wire
        endpoints.append(active)
    for end in endpoints:
        await end.aclose()
