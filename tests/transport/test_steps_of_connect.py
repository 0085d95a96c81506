"""connect and listen, step by step: which addresses are tried, over which endpoints, and which error is raised."""

# Doubles: the resolver, the choice of an Info, and both ways to connect.

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import (
    Address,
    EndpointType,
    FabricConnectionRefusedError,
    FabricConnectionRejectedError,
    FabricTimeoutError,
    NoProviderError,
    UnreachableError,
    connect,
    getinfo,
    listen,
)
from aiofabric._ffi import constants
from aiofabric.cm.reservation import Reservation
from tests.cq.manual import Caller, ManualDriver

pytestmark = pytest.mark.once

MSG, RDM = EndpointType.MSG, EndpointType.RDM
ONE, TWO = (Address.from_ip(host, 7) for host in ("127.0.0.1", "127.0.0.2"))
RAW = Address.from_str("fi_shm://there")


def refused(call: str = "fi_connect") -> Exception:
    return FabricConnectionRefusedError(constants.FI_ECONNREFUSED, call)


class Network:
    """The answer of each place, and the calls that were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.places: Any = [(ONE, None), (TWO, None)]
        self.kind = MSG
        self.answers: dict[Any, Any] = {}
        self.looked_up: list[Any] = []
        self.tried: list[Any] = []
        self.wanted: Any = None
        module = import_module("aiofabric.transport.connect")  # its function has the same name
        monkeypatch.setattr(module, "places", self._places)
        monkeypatch.setattr(module, "find_connectable", self._find)
        monkeypatch.setattr(module, "connect_native", lambda *arguments: self._connect("native", *arguments))
        monkeypatch.setattr(module, "connect_virtual", lambda *arguments: self._connect("virtual", *arguments))

    async def _places(self, node: Any, service: Any) -> Any:
        self.looked_up.append((node, service))
        return self.places or [(node, service)]

    async def _find(self, node: Any, service: Any, **wishes: Any) -> Any:
        return SimpleNamespace(
            ep_attr=SimpleNamespace(type=self.kind), dest_addr=None, fabric_attr=SimpleNamespace(prov_name="none")
        )

    async def _connect(self, way: str, info: Any, node: Any, service: Any, wanted: Any) -> Any:
        self.tried.append((way, node))
        self.wanted = wanted
        answer = self.answers.get(node, "an endpoint")
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def call(self, *where: Any, **options: Any) -> Any:
        caller = Caller(ManualDriver(), connect(*where, **options))
        assert caller.done
        if isinstance(caller.outcome, BaseException):
            raise caller.outcome
        return caller.outcome


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(monkeypatch)


# -- the addresses of a name


def test_the_first_address_that_answers_is_used(network: Network) -> None:
    assert network.call("somewhere", 7) == "an endpoint"
    assert (network.looked_up, network.tried) == ([("somewhere", 7)], [("native", ONE)])


@pytest.mark.parametrize(
    "error",
    [
        refused(),
        UnreachableError(constants.FI_EHOSTUNREACH, "fi_connect"),
        FabricTimeoutError(constants.FI_ETIMEDOUT, "fi_connect"),
        NoProviderError(constants.FI_ENODATA, "fi_getinfo"),
    ],
)
def test_an_address_that_does_not_answer_is_followed_by_the_next(error: Exception, network: Network) -> None:
    network.answers[ONE] = error
    assert network.call("somewhere", 7) == "an endpoint"
    assert [node for _, node in network.tried] == [ONE, TWO]


def test_the_first_error_is_raised_if_none_answers(network: Network) -> None:
    first, second = refused("first"), refused("second")
    network.answers = {ONE: first, TWO: second}
    with pytest.raises(FabricConnectionRefusedError) as caught:
        network.call("somewhere", 7)
    assert caught.value is first
    assert len(network.tried) == 2


@pytest.mark.parametrize(
    "error", [FabricConnectionRejectedError(constants.FI_ECONNREFUSED, "fi_connect"), OSError("another")]
)
def test_an_answer_or_another_error_is_final(error: Exception, network: Network) -> None:
    network.answers[ONE] = error
    with pytest.raises(type(error)) as caught:
        network.call("somewhere", 7)
    assert caught.value is error
    assert len(network.tried) == 1


# -- endpoints of both types


@pytest.mark.parametrize(("kind", "way"), [(MSG, "native"), (RDM, "virtual")])
def test_the_info_decides_how_to_connect(kind: EndpointType, way: str, network: Network) -> None:
    network.kind = kind
    network.call("somewhere", 7)
    assert network.tried == [(way, ONE)]


@pytest.mark.parametrize(
    ("where", "options", "node", "raw"),
    [
        (("somewhere", 7), {}, "somewhere", False),
        ((ONE,), {}, ONE, False),
        ((ONE,), {"raw": True}, ONE, True),
        ((RAW,), {}, RAW, True),
        ((str(RAW),), {}, RAW, True),
        ((str(RAW),), {"raw": True}, RAW, True),
        (("fi_sockaddr_in://127.0.0.1:7",), {}, "fi_sockaddr_in://127.0.0.1:7", False),
        (("fi_sockaddr_in://127.0.0.1:7",), {"raw": True}, ONE, True),
    ],
)
def test_an_address_is_raw_if_it_has_no_host_or_the_caller_says_so(
    where: Any, options: Any, node: Any, raw: bool, network: Network
) -> None:
    network.places = None
    network.call(*where, **options)
    assert (network.looked_up[0][0], network.wanted.raw) == (node, raw)


@pytest.mark.parametrize("where", [("somewhere", 7), ("127.0.0.1", 7)])
def test_a_name_is_no_raw_address(where: Any, network: Network) -> None:
    with pytest.raises(TypeError, match="a raw address must be an Address, or its text"):
        network.call(*where, raw=True)
    assert not network.tried


@pytest.mark.parametrize("provider", ["tcp", "shm"])
def test_without_an_address_the_infos_is_used(provider: str, network: Network) -> None:
    network.places = None
    info = next(
        each.replace(dest_addr=each.src_addr if provider == "shm" else ONE)
        for each in getinfo("127.0.0.1" if provider == "tcp" else None, 7 if provider == "tcp" else None)
        if each.fabric_attr.prov_name == provider and each.ep_attr.type == (MSG if provider == "tcp" else RDM)
    )
    network.call(info=info)
    assert network.looked_up == [(info.dest_addr, None)]
    assert network.wanted.raw is (provider == "shm")


def test_a_reserved_address_needs_no_look_up(network: Network) -> None:
    kind: Any = type("Reserved", (Reservation,), {"__repr__": object.__repr__})
    reservation = kind.__new__(kind)
    reservation.info = SimpleNamespace(fabric_attr=SimpleNamespace(prov_name="tcp", name="lo"))
    network.call("somewhere", 7, reservation=reservation)
    assert (network.looked_up, network.tried) == ([], [("native", "somewhere")])
    assert network.wanted.reservation is reservation
    attr = network.wanted.hints.fabric_attr
    assert (attr.prov_name, attr.name) == ("tcp", "lo")


def test_something_else_is_no_reservation(network: Network) -> None:
    with pytest.raises(TypeError, match="reservation must be a Reservation or None, not 5"):
        network.call("somewhere", 7, reservation=5)


# -- listening


@pytest.mark.parametrize(
    ("backlog", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), ("8", TypeError), (1.5, TypeError)]
)
def test_a_backlog_is_a_positive_number(backlog: Any, error: type[Exception]) -> None:
    caller = Caller(ManualDriver(), listen("127.0.0.1", backlog=backlog).__aenter__())
    assert isinstance(caller.outcome, error)
    assert "backlog must be" in str(caller.outcome)
