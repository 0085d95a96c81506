"""Promise: everything that reaches below libfabric's interface is in one table, was examined, and has a switch."""

# Privates: states are per process; each test begins with none.
# Doubles: other versions of libfabric, and a socket that is not found, are imitated.

import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

import aiofabric
from aiofabric import (
    Caps,
    EndpointType,
    FabricAttr,
    Hints,
    NotSupportedError,
    TrafficClass,
    Version,
    workarounds,
)
from aiofabric.cli.doctor.library import workarounds as findings
from aiofabric.cm.passive import PassiveHandle
from aiofabric.cm.workarounds.provider_sockets import connected_socket, open_descriptors, tcp_socket
from aiofabric.features import Feature, Quirk, quirks
from aiofabric.transport.connected import endpoint as connected
from aiofabric.transport.virtual import multiplexer
from aiofabric.workarounds import WORKAROUNDS, State
from tests.docs.workarounds import PAGE, text
from tests.fixtures.children import run_in_child
from tests.fixtures.internals import descriptor_of, handle_of, source_of
from tests.fixtures.peers import skip_without
from tests.fixtures.providers import Pair, over, require

ROOT = Path(__file__).parent.parent
provider = over(["tcp"])


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before, chosen = dict(workarounds._states), set(workarounds._chosen)
    yield
    workarounds._states.clear()
    workarounds._states.update(before)
    workarounds._chosen.clear()
    workarounds._chosen.update(chosen)


async def accept_one(listener: aiofabric.Listener) -> None:
    with suppress(aiofabric.FabricError):  # the peer leaves, perhaps at once
        endpoint = await (await listener.accept_request()).accept()
        try:
            await endpoint.recv()  # a connection that this side ends may end before the other side has it
        finally:
            endpoint.abort()


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


def test_a_word_of_the_environment_that_names_none_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOFABRIC_WORKAROUNDS", "no-pacign, cork,,none,coalescing")
    assert workarounds.unknown_words() == ["no-pacign", "cork"]
    cures = [each.cure for each in findings() if each.subject == "AIOFABRIC_WORKAROUNDS"]
    assert cures[0] == "did you mean no-pacing?"
    assert cures[1].startswith("there are half_open_clients, ")


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="no workaround 'cork'; there are half_open_clients, "):
        workarounds.switch("cork", False)
    with pytest.raises(ValueError, match="no workaround 'cork'; there are half_open_clients, "):
        workarounds.state("cork")


@pytest.mark.once
def test_a_word_that_names_none_is_logged_once() -> None:
    program = """
        import logging
        logging.basicConfig(level=logging.INFO)
        from aiofabric import workarounds
        workarounds.state("pacing"), workarounds.state("coalescing")
    """
    ended = run_in_child(program, AIOFABRIC_WORKAROUNDS="no-half-open-clients")
    text = "AIOFABRIC_WORKAROUNDS contains the unknown name 'no-half-open-clients', which has no effect"
    assert ended.err == f"WARNING:aiofabric:{text}: did you mean no-half_open_clients?\n"


@pytest.mark.anyio
async def test_without_half_open_clients_the_listening_socket_is_untouched() -> None:
    require("tcp")
    workarounds.switch("half_open_clients", False)
    async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener:
        handle = handle_of(listener)
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
        assert handle_of(active).socket == handle_of(passive).socket == -1
        for _ in range(10):
            active.send_nowait(b"x" * 100)
        for _ in range(10):
            await passive.recv()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "quirk", "kind"),
    [
        ("orphaned_entries", Quirk.ORPHANED_ENTRIES_STAY, "OrphanedEntries"),
        ("unanswered_sends", Quirk.SENDS_WAIT_IN_LINE, "Unanswered"),
    ],
)
async def test_without_it_no_object_examines_the_memory_of_shm(
    name: str, quirk: Quirk, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("shm")
    [info, *_] = aiofabric.getinfo(hints=Hints(fabric_attr=FabricAttr(prov_name="shm")))
    real, made = getattr(multiplexer, kind), []

    def make(*args: object) -> object:
        made.append(kind)
        return real(*args)

    monkeypatch.setattr(multiplexer, kind, make)
    for on in (False, True):
        workarounds.switch(name, on)
        async with aiofabric.listen("127.0.0.1", 0, provider="shm") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(accept_one, listener)
            (await aiofabric.connect(listener.address, provider="shm")).abort()
        assert bool(made) is (on and quirk in quirks(info))


@pytest.mark.anyio
@pytest.mark.parametrize("on", [True, False])
async def test_without_traffic_class_packets_have_the_system_s_class(provider: str, on: bool) -> None:
    workarounds.switch("traffic_class", on)
    hints = Hints()
    hints.tx_attr.tclass = TrafficClass.from_dscp(46)
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(accept_one, listener)
        async with await aiofabric.connect(listener.address, provider=provider, hints=hints) as endpoint:
            sock = connected_socket(descriptor_of(endpoint), endpoint.local_address, endpoint.peer_address)
            assert sock is not None
            assert sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2 == (46 if on else 0)


@pytest.mark.anyio
@pytest.mark.parametrize("on", [True, False])
async def test_the_class_of_packets_over_ipv6_is_a_field_of_their_own(provider: str, on: bool) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no ::1: {error}")
    workarounds.switch("traffic_class", on)
    hints = Hints()
    hints.tx_attr.tclass = TrafficClass.from_dscp(46)
    async with aiofabric.listen("::1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(accept_one, listener)
        async with await aiofabric.connect(listener.address, provider=provider, hints=hints) as endpoint:
            sock = connected_socket(descriptor_of(endpoint), endpoint.local_address, endpoint.peer_address)
            assert sock is not None
            assert sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS) >> 2 == (46 if on else 0)


@pytest.mark.anyio
@pytest.mark.parametrize("on", [True, False])
async def test_without_half_open_clients_the_port_of_an_rdm_endpoint_is_untouched(on: bool) -> None:
    name = "tcp;ofi_rxm"
    skip_without(name, Caps.MSG)
    workarounds.switch("half_open_clients", on)
    async with aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1", provider=name) as endpoint:
        found = [tcp_socket(each) for each in open_descriptors()]
        ports = [each for each in found if each is not None and each.getsockname()[1] == endpoint.local_address.port]
        assert [bool(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT)) for each in ports] == [on]
        assert (source_of(endpoint).delays.may_stay_readable is not None) is on


@pytest.mark.anyio
@pytest.mark.parametrize("preface", [True, False])
async def test_without_keepalive_a_heartbeat_is_refused(provider: str, preface: bool) -> None:
    workarounds.switch("keepalive", False)
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def accept_and_stay() -> None:
            with suppress(aiofabric.FabricError):
                async with await (await listener.accept_request()).accept() as endpoint:
                    await endpoint.recv()

        tasks.start_soon(accept_and_stay)
        with pytest.raises(NotSupportedError, match=r"heartbeat.* 'keepalive' is off.*AIOFABRIC_WORKAROUNDS=keepalive"):
            await aiofabric.connect(listener.address, provider=provider, heartbeat=5, preface=preface)
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_libfabric_names_the_socket_of_a_connection_since_2_2(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that, a connection whose descriptor was not foreseen has no socket that is known to be its own."""
    monkeypatch.setattr(connected, "next_descriptor", lambda: None)
    async with pair() as (active, _):
        assert (handle_of(active).socket != -1) is (aiofabric.library_version() >= Feature.GET_FD.since)


@pytest.mark.anyio
async def test_a_heartbeat_without_a_socket_can_be_tried_again(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread took the foreseen descriptor; from 2.2 on, libfabric names the socket."""
    monkeypatch.setattr(connected, "descriptor_of", lambda _: None)
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(accept_one, listener)
        monkeypatch.setattr(connected, "next_descriptor", lambda: None)
        with pytest.raises(NotSupportedError, match=r"could not identify it this time.*another thread.*Connect again$"):
            await aiofabric.connect(listener.address, provider=provider, heartbeat=5)


@pytest.mark.once
@pytest.mark.parametrize("words", ["", "no-signals"])
def test_loading_libfabric_leaves_the_environment_as_it_was(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HFI_NO_BACKTRACE", "by the program")
    monkeypatch.delenv("IPATH_NO_BACKTRACE", raising=False)
    program = """
        import os, aiofabric
        before = dict(os.environ)
        aiofabric.getinfo()
        print(dict(os.environ) == before)
    """
    ended = run_in_child(program, AIOFABRIC_WORKAROUNDS=words)
    assert (ended.status, ended.out) == (0, "True\n"), ended


@pytest.mark.once
@pytest.mark.parametrize("on", [True, False])
def test_signals_can_be_switched_before_libfabric_is_loaded(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPATH_NO_BACKTRACE", "HFI_NO_BACKTRACE"):
        monkeypatch.delenv(name, raising=False)
    program = f"""
        import ctypes, os, aiofabric
        from aiofabric import workarounds
        workarounds.switch("signals", {on})
        real, seen = ctypes.CDLL, set()
        def watched(*args, **options):
            seen.add(os.environ.get("IPATH_NO_BACKTRACE"))
            return real(*args, **options)
        ctypes.CDLL = watched
        aiofabric.library_version()
        print("1" in seen)
    """
    ended = run_in_child(program, AIOFABRIC_WORKAROUNDS="")
    assert (ended.status, ended.out) == (0, f"{on}\n"), ended


@pytest.mark.parametrize("order", ["loaded earlier", "linked", "later"])
def test_locks_stay_as_they_are_beside_another_user_of_libfabric(order: str, tmp_path: Path) -> None:
    """An MPI in the same process calls the same functions: they are not changed unless that is asked for."""
    if workarounds.state("robust_locks") is State.NOT_NEEDED:
        pytest.skip("this libfabric's shm has no such locks")
    user = tmp_path / "aiofabric" / "libuser.so"  # a folder of this name does not make it one of aiofabric's modules
    user.parent.mkdir()
    command: list[str | Path] = [
        "gcc",
        "-shared",
        "-x",
        "c",
        "/dev/null",
        "-o",
        user,
        "-Wl,--no-as-needed",
        "-l:libfabric.so.1",
    ]
    subprocess.run(command, check=True)
    program = f"""
import ctypes, sys
from aiofabric import workarounds
order = {order!r}
if order == "linked":
    print(workarounds.has_other_users())
if order == "later":
    print(workarounds.state("robust_locks"))
ctypes.CDLL({str(user)!r})
print(workarounds.state("robust_locks"))
workarounds.switch("robust_locks", True)
print(workarounds.state("robust_locks"))
"""
    ended = run_in_child(program)
    expected = {"linked": "False\n", "later": f"{State.ON}\n"}.get(order, "")
    assert ended.out == f"{expected}{State.SHARED}\n{State.ON}\n", ended.err
