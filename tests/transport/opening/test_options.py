"""The options of an endpoint by themselves: their limits, the hints they complete, and the domain they ask for."""

from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import Caps, Counter, EndpointType, EpAttr, Hints, NotSupportedError, OpFlags, getinfo
from aiofabric.flags import Bind
from aiofabric.info import SHARED_CONTEXT
from aiofabric.transport.opening.options import EndpointOptions
from aiofabric.transport.opening.shared_contexts import SharedReceive, SharedTransmit

pytestmark = pytest.mark.once


def of(kind: type[Any], domain: Any) -> Any:
    """A shared context or a counter that says it is of this domain."""
    bound: Any = type(kind.__name__, (kind,), {"__repr__": object.__repr__})
    each = bound.__new__(bound)
    each.domain = domain
    return each


def given(options: dict[str, Any]) -> EndpointOptions:
    return EndpointOptions(**options)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("recv_size", 1),
        ("recv_count", 1),
        ("remote_writes", 0),
        ("cancel_grace", 0),
        ("close_timeout", 0),
        ("busy_poll", 0),
        ("heartbeat", 3),
    ],
)
def test_the_least_value_is_allowed_and_nothing_below(name: str, least: int) -> None:
    assert getattr(given({name: least}), name) == least
    with pytest.raises(ValueError, match=name):
        given({name: least - 1})


def test_the_longest_heartbeat_is_the_kernel_s() -> None:
    assert EndpointOptions(heartbeat=32767.0).heartbeat == 32767.0
    with pytest.raises(ValueError, match="heartbeat must be 3 to 32767 seconds"):
        EndpointOptions(heartbeat=32767.5)


def test_large_buffers_need_the_length_of_a_message() -> None:
    assert EndpointOptions(multi_recv=4096, recv_size=10).multi_recv == 4096
    assert EndpointOptions(recv_size=None).multi_recv is None
    with pytest.raises(ValueError, match="multi_recv needs recv_size"):
        EndpointOptions(multi_recv=4096, recv_size=None)


def test_remote_writes_are_not_reported_to_a_shared_context() -> None:
    shared = of(SharedReceive, None)
    assert EndpointOptions(shared_receive=shared).remote_writes == 0
    assert EndpointOptions(remote_writes=1).remote_writes == 1
    with pytest.raises(ValueError, match="exclude each other"):
        EndpointOptions(shared_receive=shared, remote_writes=1)


@pytest.mark.parametrize("name", ["recv_size", "recv_count", "cancel_grace", "heartbeat", "remote_writes"])
def test_a_bool_is_no_number(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a number"):
        given({name: True})


@pytest.mark.parametrize("name", ["selective", "preface"])
def test_a_number_is_no_bool(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be True or False"):
        given({name: 1})


def test_the_keys_of_counters_are_counters() -> None:
    with pytest.raises(TypeError, match="must be Counter objects, not 'sends'"):
        EndpointOptions(counters={"sends": Bind.SEND})  # type: ignore[dict-item]


# -- hints


def test_the_hints_stay_as_they_are_without_shared_contexts() -> None:
    options, hints = EndpointOptions(), Hints(caps=Caps.MSG)
    assert options.complete(hints, None) is hints
    assert options.complete(None, None) is None


@pytest.mark.parametrize("receive", [False, True])
@pytest.mark.parametrize("transmit", [False, True])
def test_shared_contexts_are_asked_for_in_the_hints(receive: bool, transmit: bool) -> None:
    options = EndpointOptions(
        shared_receive=of(SharedReceive, None) if receive else None,
        shared_transmit=of(SharedTransmit, None) if transmit else None,
    )
    for hints in (None, Hints(caps=Caps.MSG, ep_attr=EpAttr(type=EndpointType.MSG))):
        completed = options.complete(hints, None)
        if not (receive or transmit):
            assert completed is hints
            continue
        assert completed is not None
        counts = completed.ep_attr.rx_ctx_cnt, completed.ep_attr.tx_ctx_cnt
        assert counts == (SHARED_CONTEXT * receive, SHARED_CONTEXT * transmit)
        if hints is not None:
            assert (completed.caps, completed.ep_attr.type) == (hints.caps, hints.ep_attr.type)
            assert (hints.ep_attr.rx_ctx_cnt, hints.ep_attr.tx_ctx_cnt) == (0, 0)  # the caller's own


def test_a_chosen_info_is_not_completed() -> None:
    options = EndpointOptions(shared_receive=of(SharedReceive, None))
    info = getinfo()[0]
    assert options.complete(None, info) is None
    hints = Hints(caps=Caps.MSG)
    assert options.complete(hints, info) is hints


# -- the domain


@pytest.mark.parametrize("kind", [SharedReceive, SharedTransmit, Counter])
def test_the_domain_is_that_of_the_bound_objects(kind: type[Any]) -> None:
    domain: Any = SimpleNamespace()
    each = of(kind, domain)
    bound: dict[Any, dict[str, Any]] = {
        SharedReceive: {"shared_receive": each},
        SharedTransmit: {"shared_transmit": each},
        Counter: {"counters": {each: Bind.SEND}},
    }
    options = given(bound[kind])
    assert options.domain_for(None) is domain
    assert options.domain_for(domain) is domain
    with pytest.raises(ValueError, match="pass domain= with the one"):
        options.domain_for(SimpleNamespace())  # type: ignore[arg-type]


def test_objects_of_two_domains_cannot_be_bound_together() -> None:
    options = EndpointOptions(
        shared_receive=of(SharedReceive, SimpleNamespace()), shared_transmit=of(SharedTransmit, SimpleNamespace())
    )
    with pytest.raises(ValueError, match="pass domain= with the one"):
        options.domain_for(None)


def test_without_bound_objects_the_domain_is_the_callers() -> None:
    domain: Any = SimpleNamespace()
    assert EndpointOptions().domain_for(domain) is domain
    assert EndpointOptions().domain_for(None) is None


# -- connections over connectionless endpoints


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ""),
        ({"recv_size": 10, "heartbeat": 5, "remote_writes": 3, "preface": False}, ""),
        ({"multi_recv": 4096}, "multi_recv"),
        ({"selective": True, "prepare": print}, "prepare, selective"),
        ({"open_flags": OpFlags.PEER_TRANSFER}, "open_flags"),
        ({"shared_receive": of(SharedReceive, None)}, "shared_receive"),
        ({"shared_transmit": of(SharedTransmit, None)}, "shared_transmit"),
        ({"counters": {of(Counter, None): Bind.SEND}}, "counters"),
    ],
)
def test_options_that_need_a_native_endpoint_are_refused(options: dict[str, Any], names: str) -> None:
    wanted = given(options)
    if not names:
        wanted.check_virtual("shm")
        return
    with pytest.raises(NotSupportedError, match="The provider shm has no connected endpoints") as caught:
        wanted.check_virtual("shm")
    assert caught.value.call == names
