"""Promise: what reaches below libfabric's interface is in one table, examined, and can be switched off."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

import aiofabric
from aiofabric import NotSupportedError, Version, workarounds
from aiofabric.cm.passive import PassiveHandle
from aiofabric.workarounds import WORKAROUNDS, State
from tests.docs.workarounds import PAGE, text
from tests.fixtures.children import run_in_child
from tests.fixtures.providers import Pair, over, require

ROOT = Path(__file__).parent.parent
provider = over(["tcp"])


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = dict(workarounds._states)
    yield
    workarounds._states.clear()
    workarounds._states.update(before)


async def accept_one(listener: aiofabric.Listener) -> None:
    with suppress(aiofabric.FabricError):  # the peer may leave at once
        (await (await listener.accept_request()).accept()).abort()


@pytest.mark.once
def test_the_page_is_what_the_generator_writes() -> None:
    assert PAGE.read_text() == text(), "run python -m tests.docs.workarounds"


@pytest.mark.once
def test_each_has_its_code_and_its_test() -> None:
    for each in WORKAROUNDS.values():
        assert (ROOT / "aiofabric" / each.code).exists(), each.code
        assert (ROOT / "tests" / each.test).exists(), each.test


@pytest.mark.parametrize("name", WORKAROUNDS)
@pytest.mark.parametrize("version", [Version(1, 16), Version(2, 9)])
def test_a_version_that_nobody_examined_has_it_off(
    name: str, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    workarounds._states.clear()
    monkeypatch.setattr(workarounds, "library_version", lambda: version)
    assert workarounds.state(name) in (State.NOT_EXAMINED, State.NOT_NEEDED)
    assert not workarounds.is_on(name)


@pytest.mark.parametrize(
    ("words", "on", "off"),
    [
        ("no-pacing", {"coalescing"}, {"pacing"}),
        ("none", set(), set(WORKAROUNDS)),
        ("none, pacing", {"pacing"}, {"coalescing"}),
        ("orphaned_entries,unanswered_sends", {"orphaned_entries", "unanswered_sends"}, set()),
    ],
)
def test_the_environment_switches(words: str, on: set[str], off: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    workarounds._states.clear()
    monkeypatch.setenv("AIOFABRIC_WORKAROUNDS", words)
    assert on == {name for name in on if workarounds.is_on(name)}
    assert not any(map(workarounds.is_on, off))
    assert workarounds.unknown_words() == []


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="no workaround 'cork'; there are half_open_clients, "):
        workarounds.switch("cork", False)


@pytest.mark.anyio
async def test_without_half_open_clients_the_listening_socket_is_untouched() -> None:
    require("tcp")
    workarounds.switch("half_open_clients", False)
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener:
        handle = listener._handle
        assert isinstance(handle, PassiveHandle)
        assert handle.events.half_open is None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept_one, listener)
            (await aiofabric.connect(listener.address, provider="tcp")).abort()


@pytest.mark.anyio
async def test_without_any_a_connection_s_socket_is_untouched(pair: Pair) -> None:
    for name in ("pacing", "coalescing", "keepalive", "traffic_class"):
        workarounds.switch(name, False)
    async with pair() as (active, passive):
        assert active._handle.socket == passive._handle.socket == -1
        for _ in range(10):
            active.send_nowait(b"x" * 100)
        for _ in range(10):
            await passive.recv()


@pytest.mark.anyio
async def test_without_keepalive_a_heartbeat_is_refused(provider: str) -> None:
    workarounds.switch("keepalive", False)
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def accept_and_stay() -> None:
            with suppress(aiofabric.FabricError):
                async with await (await listener.accept_request()).accept() as endpoint:
                    await endpoint.recv()

        tasks.start_soon(accept_and_stay)
        with pytest.raises(NotSupportedError, match="heartbeat"):
            await aiofabric.connect(listener.address, provider=provider, heartbeat=5)
        tasks.cancel_scope.cancel()


@pytest.mark.once
def test_the_environment_of_the_program_is_left_alone_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("FI_OFI_RXM_SAR_LIMIT", "IPATH_NO_BACKTRACE", "HFI_NO_BACKTRACE")
    program = f"""
        import os, aiofabric
        aiofabric.library_version()
        print([name for name in {names!r} if name in os.environ])
    """
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for words, expected in (("no-environment", []), ("", [*names])):
        ended = run_in_child(program, AIOFABRIC_WORKAROUNDS=words)
        assert (ended.status, ended.out) == (0, f"{expected}\n"), ended
