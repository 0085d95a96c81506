"""The bindings that fit an endpoint, and the Info that it is then opened with."""

# Doubles: the defects of a provider.

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import Caps, EndpointType, EpAttr, FabricAttr, Hints, Info, NotSupportedError, OpFlags, getinfo
from aiofabric.features import Quirk
from aiofabric.flags import Bind
from aiofabric.info import SHARED_CONTEXT
from aiofabric.transport.exclusions import lacking, receives_messages, refusal
from aiofabric.transport.opening import bindings
from aiofabric.transport.opening.bindings import as_opened, check_bindings, without_unsafe_flags

pytestmark = pytest.mark.once

LEVELS = OpFlags.INJECT_COMPLETE | OpFlags.TRANSMIT_COMPLETE | OpFlags.DELIVERY_COMPLETE


@pytest.fixture(scope="module")
def tcp() -> Info:
    attributes: Any = {"fabric_attr": FabricAttr(prov_name="tcp"), "ep_attr": EpAttr(type=EndpointType.MSG)}
    return getinfo(hints=Hints(caps=Caps.MSG | Caps.RMA, **attributes))[0]


def bound(**given: Any) -> Any:
    nothing: dict[str, Any] = {
        "counters": {},
        "multi_recv": None,
        "selective": False,
        "shared_receive": None,
        "shared_transmit": None,
    }
    return SimpleNamespace(**(nothing | given))


# -- counters


def test_counters_of_different_operations_fit(tcp: Info) -> None:
    check_bindings(bound(counters={1: Bind.SEND, 2: Bind.RECV, 3: Bind.READ | Bind.WRITE}), tcp)


@pytest.mark.parametrize("second", [Bind.SEND, Bind.RECV | Bind.SEND])
def test_two_counters_of_one_operation_do_not(second: Bind, tcp: Info) -> None:
    with pytest.raises(ValueError, match="two counters are to count FI_TRANSMIT"):
        check_bindings(bound(counters={1: Bind.SEND | Bind.READ, 2: second}), tcp)


@pytest.mark.parametrize("flag", [Bind.REMOTE_READ, Bind.REMOTE_WRITE])
def test_a_peers_accesses_are_counted_only_if_they_are_events(flag: Bind, tcp: Info) -> None:
    info = SimpleNamespace(ep_attr=tcp.ep_attr, caps=Caps.MSG | Caps.RMA)
    with pytest.raises(ValueError, match=f"a counter of {flag} stays 0"):
        check_bindings(bound(counters={1: flag | Bind.SEND}), info)  # type: ignore[arg-type]
    info.caps |= Caps.RMA_EVENT
    check_bindings(bound(counters={1: flag | Bind.SEND}), info)  # type: ignore[arg-type]


# -- shared contexts


@pytest.mark.parametrize("side", ["receive", "transmit"])
def test_a_shared_context_that_the_hints_ask_for_is_passed(side: str, tcp: Info) -> None:
    counts = {"rx_ctx_cnt": 1, "tx_ctx_cnt": 1, f"{'rx' if side == 'receive' else 'tx'}_ctx_cnt": SHARED_CONTEXT}
    info: Any = SimpleNamespace(ep_attr=SimpleNamespace(type=EndpointType.MSG, **counts), caps=tcp.caps)
    with pytest.raises(ValueError, match=rf"pass shared_{side}=Shared{side.capitalize()}\(domain\)"):
        check_bindings(bound(), info)
    check_bindings(bound(**{f"shared_{side}": object()}), info)


@pytest.mark.parametrize("receive", [False, True])
@pytest.mark.parametrize("transmit", [False, True])
@pytest.mark.parametrize("crashes", [False, True])
def test_the_info_names_the_shared_contexts(
    crashes: bool, transmit: bool, receive: bool, tcp: Info, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bindings, "quirks", lambda _: Quirk.SHARED_TRANSMIT_CRASHES if crashes else Quirk(0))
    opened = as_opened(
        tcp, bound(shared_receive=object() if receive else None, shared_transmit=object() if transmit else None)
    )
    if not receive and not transmit:
        assert opened is tcp
        return
    wanted = SHARED_CONTEXT if receive else tcp.ep_attr.rx_ctx_cnt
    assert opened.ep_attr.rx_ctx_cnt == wanted
    wanted = (1 if crashes else SHARED_CONTEXT) if transmit else tcp.ep_attr.tx_ctx_cnt
    assert opened.ep_attr.tx_ctx_cnt == wanted


# -- kinds of endpoints


@pytest.mark.parametrize("kind", [EndpointType.RDM, EndpointType.DGRAM])
def test_without_a_connection_no_completion_covers_earlier_operations(kind: EndpointType, tcp: Info) -> None:
    info: Any = SimpleNamespace(ep_attr=SimpleNamespace(type=kind, rx_ctx_cnt=1, tx_ctx_cnt=1), caps=tcp.caps)
    with pytest.raises(NotSupportedError, match="operations complete in any order"):
        check_bindings(bound(selective=True), info)
    check_bindings(bound(), info)
    check_bindings(bound(selective=True), tcp)


@pytest.mark.parametrize("shared", [False, True])
def test_large_buffers_are_checked_unless_a_shared_context_has_them(
    shared: bool, tcp: Info, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Info] = []
    monkeypatch.setattr(bindings, "check_multi_recv", checked.append)
    check_bindings(bound(), tcp)
    assert not checked
    check_bindings(bound(multi_recv=4096, shared_receive=object() if shared else None), tcp)
    assert checked == ([] if shared else [tcp])


# -- defects of providers


def test_short_queues_that_hang_are_opened_longer(tcp: Info, monkeypatch: pytest.MonkeyPatch) -> None:
    short = tcp.replace(tx_attr={"size": 4}, rx_attr={"size": 300})
    assert as_opened(short, bound()) is short
    monkeypatch.setattr(bindings, "quirks", lambda _: Quirk.SHORT_QUEUES_HANG)
    opened = as_opened(short, bound())
    assert (opened.tx_attr.size, opened.rx_attr.size) == (256, 300)
    assert short.tx_attr.size == 4


@pytest.mark.parametrize("defect", [Quirk.INJECT_NEVER_COMPLETES, Quirk.INJECT_WAITS])
@pytest.mark.parametrize("short", [False, True])
def test_an_injected_message_that_never_completes_or_waits_is_not_the_default(
    short: bool, defect: Quirk, tcp: Info, monkeypatch: pytest.MonkeyPatch
) -> None:
    injects = tcp.replace(tx_attr={"op_flags": OpFlags.INJECT | OpFlags.INJECT_COMPLETE, "size": 4})
    known = defect | (Quirk.SHORT_QUEUES_HANG if short else Quirk(0))
    monkeypatch.setattr(bindings, "quirks", lambda _: known)
    opened = as_opened(injects, bound())
    assert opened.tx_attr.op_flags == OpFlags.INJECT_COMPLETE
    assert opened.tx_attr.size == (256 if short else 4)
    assert OpFlags.INJECT in injects.tx_attr.op_flags
    plain = tcp.replace(tx_attr={"op_flags": OpFlags.INJECT_COMPLETE, "size": 4})
    assert as_opened(plain, bound()).tx_attr.op_flags == OpFlags.INJECT_COMPLETE


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("sends", [OpFlags(0), OpFlags.INJECT, OpFlags.INJECT | LEVELS, LEVELS])
def test_default_flags_that_would_lose_messages_are_left_out(sends: OpFlags, many: bool, tcp: Info) -> None:
    """A provider that lists all levels with FI_INJECT lists what it can do; one level alone is a wish."""
    receives = OpFlags.COMPLETION | (OpFlags.MULTI_RECV if many else OpFlags(0))
    info = tcp.replace(tx_attr={"op_flags": sends}, rx_attr={"op_flags": receives})
    safe = without_unsafe_flags(info)
    listed = sends == OpFlags.INJECT | LEVELS
    assert (safe is info) is (not many and not listed)
    assert safe.rx_attr.op_flags == OpFlags.COMPLETION
    assert safe.tx_attr.op_flags == (LEVELS if listed else sends)
    assert (info.rx_attr.op_flags, info.tx_attr.op_flags) == (receives, sends)


# -- capabilities


@pytest.mark.parametrize(
    ("caps", "kind", "direction", "missing"),
    [
        (Caps.MSG, Caps.MSG, Caps.SEND, Caps(0)),  # no direction: both
        (Caps.MSG | Caps.SEND, Caps.MSG, Caps.SEND, Caps(0)),
        (Caps.MSG | Caps.SEND, Caps.MSG, Caps.RECV, Caps.RECV),
        (Caps.MSG | Caps.SEND, Caps.MSG, Caps.SEND | Caps.RECV, Caps.RECV),
        (Caps.TAGGED, Caps.MSG, Caps.SEND, Caps.MSG | Caps.SEND),
        (Caps.RMA | Caps.SEND, Caps.RMA, Caps.READ, Caps(0)),  # a direction of messages
        (Caps.RMA | Caps.WRITE, Caps.RMA, Caps.READ, Caps.READ),
        (Caps.RMA | Caps.REMOTE_READ, Caps.RMA, Caps.REMOTE_WRITE, Caps.REMOTE_WRITE),
        (Caps.MSG | Caps.WRITE, Caps.MSG, Caps.RECV, Caps(0)),
        (Caps.ATOMIC | Caps.READ, Caps.ATOMIC, Caps.WRITE, Caps.WRITE),
        (Caps.ATOMIC | Caps.RECV, Caps.ATOMIC, Caps.WRITE, Caps(0)),
    ],
)
def test_an_endpoint_lacks_directions_that_it_was_not_opened_with(
    caps: Caps, kind: Caps, direction: Caps, missing: Caps
) -> None:
    as_the_endpoint = SimpleNamespace(caps=Caps(0))
    info: Any = SimpleNamespace(caps=caps, tx_attr=as_the_endpoint, rx_attr=as_the_endpoint)
    assert lacking(info, kind, direction) == missing
    if kind == Caps.MSG and direction == Caps.RECV:
        assert receives_messages(info) is not bool(missing)


def test_the_refusal_names_what_to_add() -> None:
    error = refusal("recv", Caps.MSG | Caps.RECV)
    assert "add Caps.MSG | Caps.RECV to the capabilities" in str(error)
