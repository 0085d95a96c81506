"""Which objects the endpoints of a loop share: the keys and counts, with objects that only record their close."""

# Doubles: fabrics, domains and queues without a provider; the defects of a provider; the endpoints of one queue.
# Privates: the number of those endpoints is a constant of the module, and so is the class of shared domains.

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from aiofabric import Caps, EndpointType, EpAttr, FabricAttr, Hints, Info, NotSupportedError, Waiting, getinfo
from aiofabric.cq.reactor import Reactor
from aiofabric.features import Quirk
from aiofabric.transport.handle import EndpointHandle
from aiofabric.transport.opening import shared_objects
from aiofabric.transport.opening.shared_objects import acquire_domain, acquire_fabric, acquire_queues
from tests.cq.manual import ManualDriver

pytestmark = pytest.mark.once


class Shared:
    """An object that was made for an Info, and perhaps on a domain."""

    ended: ClassVar[list[Any]] = []
    release: Any

    def __init__(self, *made_for: Any) -> None:
        self.made_for = made_for
        self.domain: Any = self

    @property
    def closed(self) -> bool:
        return self in self.ended

    def close(self) -> None:
        self.ended.append(self)


@pytest.fixture
def known() -> set[Quirk]:
    return set()


@pytest.fixture
def reactor(known: set[Quirk], monkeypatch: pytest.MonkeyPatch) -> Reactor:
    monkeypatch.setattr(Shared, "ended", [])
    for name in ("Fabric", "_SharedDomain", "DomainQueues"):
        monkeypatch.setattr(shared_objects, name, type(name, (Shared,), {}))
    monkeypatch.setattr(shared_objects, "quirks", lambda _: known)
    monkeypatch.setattr(shared_objects, "_SWEPT_ENDPOINTS", 2)
    return Reactor(ManualDriver())


def offer(caps: Caps = Caps.MSG | Caps.RMA) -> Info:
    attributes: Any = {"fabric_attr": FabricAttr(prov_name="tcp"), "ep_attr": EpAttr(type=EndpointType.MSG)}
    return getinfo("127.0.0.1", 5, hints=Hints(caps=caps, **attributes))[0]


# -- fabrics and domains


def test_a_fabric_is_closed_with_its_last_user(reactor: Reactor) -> None:
    info = offer()
    (one, first), (other, second) = (acquire_fabric(reactor, each) for each in (info, info.replace(caps=Caps.MSG)))
    assert one is other
    first()
    assert not Shared.ended
    second()
    assert Shared.ended == [one]
    assert acquire_fabric(reactor, info)[0] is not one


def test_endpoints_of_equal_infos_share_a_domain(reactor: Reactor) -> None:
    info = offer()
    (one, first), (other, second) = (acquire_domain(reactor, each, None) for each in (info, offer()))
    assert one is other
    elsewhere, _ = acquire_domain(reactor, info.replace(dest_addr=info.src_addr), None)
    assert elsewhere is one  # addresses do not matter
    different, _ = acquire_domain(reactor, offer(Caps.MSG), None)
    assert different is not one
    first()
    second()
    assert not Shared.ended


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize("strays", [False, True])
def test_endpoints_whose_tagged_messages_would_stray_have_domains_of_their_own(
    strays: bool, tagged: bool, reactor: Reactor, known: set[Quirk]
) -> None:
    if strays:
        known.add(Quirk.TAGGED_STRAYS)
    info: Any = offer().duplicate()
    if tagged:
        info.native.caps |= int(Caps.TAGGED)
    assert (Caps.TAGGED in info.caps) is tagged
    one, _ = acquire_domain(reactor, info, None)
    other, release = acquire_domain(reactor, info, None)
    assert (one is other) is not (strays and tagged)
    release()
    assert Shared.ended == ([other] if strays and tagged else [])


class Domain:
    """The caller's domain."""

    def __init__(self, *children: Any) -> None:
        self._handle = SimpleNamespace(check_open=lambda: None, children=children)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("strays", [False, True])
def test_the_callers_domain_is_used_unless_messages_would_stray(
    strays: bool, used: bool, reactor: Reactor, known: set[Quirk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_objects, "check_capabilities", lambda *_: None)
    if strays:
        known.add(Quirk.TAGGED_STRAYS)
    info: Any = offer().duplicate()
    info.native.caps |= int(Caps.TAGGED)
    domain: Any = Domain(object(), *([object.__new__(EndpointHandle)] if used else []))
    if strays and used:
        with pytest.raises(NotSupportedError, match="this domain already has an endpoint"):
            acquire_domain(reactor, info, domain)
        return
    found, release = acquire_domain(reactor, info, domain)
    assert found is domain
    release()
    assert not Shared.ended


# -- queues


def queues(reactor: Reactor, info: Info, domain: Any = None, *, busy_poll: float = 200.0, alone: bool = False) -> Any:
    waiting = Waiting.ADAPTIVE
    return acquire_queues(reactor, info, domain, waiting, busy_poll, alone=alone)


def test_endpoints_share_queues_that_the_last_one_closes(reactor: Reactor) -> None:
    info = offer()
    found = [queues(reactor, info) for _ in range(5)]
    assert len({id(each) for each, _ in found}) == 1
    for _, release in found[:-1]:
        release()
    assert not Shared.ended
    found[-1][1]()
    assert Shared.ended == [found[0][0]]


def test_where_a_read_polls_all_endpoints_few_share_a_queue(reactor: Reactor, known: set[Quirk]) -> None:
    known.add(Quirk.READ_SWEEPS_ENDPOINTS)
    info = offer()
    found = [queues(reactor, info) for _ in range(5)]
    one, two, three = (found[index][0] for index in (0, 2, 4))
    assert [each for each, _ in found] == [one, one, two, two, three]
    found[0][1]()
    assert queues(reactor, info)[0] is one  # there is room again
    assert not Shared.ended


def test_what_the_program_closed_is_not_shared_with_new_endpoints(reactor: Reactor) -> None:
    """Its last users may still have to leave."""
    info = offer()
    old, release_queues = queues(reactor, info)
    domain, release_domain = acquire_domain(reactor, info, None)
    old.close()
    Shared.ended.append(domain)
    assert queues(reactor, info)[0] is queues(reactor, info)[0] is not old
    assert acquire_domain(reactor, info, None)[0] is not domain
    release_queues()
    release_domain()


def test_queues_alone_are_shared_with_no_endpoint(reactor: Reactor) -> None:
    info = offer()
    shared, _ = queues(reactor, info)
    own, release = queues(reactor, info, alone=True)
    assert own is not shared
    assert queues(reactor, info)[0] is shared
    release()
    assert Shared.ended == [own]


def test_other_domains_and_ways_to_wait_have_other_queues(reactor: Reactor) -> None:
    info = offer()
    domains: list[Any] = [Domain(), Domain()]
    found = [
        queues(reactor, info)[0],
        queues(reactor, offer(Caps.MSG))[0],
        queues(reactor, info, busy_poll=0.0)[0],
        *(queues(reactor, info, domain)[0] for domain in domains),
    ]
    assert len({id(each) for each in found}) == len(found)
    assert queues(reactor, info, domains[0])[0] is found[3]
    assert found[3].made_for == (reactor, info, domains[0], Waiting.ADAPTIVE, 200.0)


# -- counts


def test_what_was_not_acquired_has_no_users(reactor: Reactor) -> None:
    assert reactor.users_of("nothing") == 0
    assert reactor.acquire("something", object) is reactor.acquire("something", object)
    assert reactor.users_of("something") == 2


def test_an_object_that_could_not_be_made_is_not_shared(reactor: Reactor) -> None:
    def fails() -> Any:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        reactor.acquire("something", fails)
    assert reactor.users_of("something") == 0
