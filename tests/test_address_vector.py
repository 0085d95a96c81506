"""Address vectors: every way to insert and remove an address, and the number that the provider gives it."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import (
    Address,
    AddressFormat,
    AddressVector,
    AvType,
    Domain,
    EndpointType,
    EpAttr,
    FabricAttr,
    Hints,
)
from tests.fixtures.children import Child, Parent, run_in_child
from tests.fixtures.peers import RARE, RDM, skip_without, where
from tests.fixtures.providers import HOST


@pytest.fixture(params=["tcp;ofi_rxm", "sockets"])
def domain(request: pytest.FixtureRequest) -> Iterator[Domain]:
    skip_without(request.param, aiofabric.Caps.MSG)
    hints = Hints(fabric_attr=FabricAttr(prov_name=request.param), ep_attr=EpAttr(type=EndpointType.RDM))
    with Domain(aiofabric.getinfo(where(request.param, HOST), hints=hints)[0]) as domain:
        yield domain


FIRST = Address.from_ip("127.0.0.1", 7471)
SECOND = Address.from_ip("127.0.0.1", 7472)


def test_every_spelling_of_an_address_is_one_peer(domain: Domain) -> None:
    with AddressVector(domain) as vector:
        peer = vector.insert(FIRST)
        for spelling in (FIRST.raw, "fi_sockaddr_in://127.0.0.1:7471", "fi_sockaddr://127.0.0.1:7471"):
            assert vector.insert(spelling) is peer
        assert (len(vector), list(vector)) == (1, [peer])
        assert FIRST in vector
        assert peer in vector
        assert SECOND not in vector


@pytest.mark.parametrize("type", [AvType.UNSPEC, AvType.MAP, AvType.TABLE])
def test_the_provider_gives_back_what_it_was_given(domain: Domain, type: AvType) -> None:
    with AddressVector(domain, type=type, count=2) as vector:
        peers = [vector.insert(FIRST), vector.insert(SECOND)]
        assert [vector.lookup(peer) for peer in peers] == [FIRST, SECOND]
        assert vector.find(peers[1].native) is peers[1]
        assert "127.0.0.1:7472" in vector.straddr(peers[1])
        assert "127.0.0.1:7471" in vector.straddr(FIRST)


@pytest.mark.parametrize("provider", [*RDM, *RARE])
@pytest.mark.parametrize("type", [AvType.MAP, AvType.TABLE])
def test_the_domain_says_the_type(provider: str, type: AvType) -> None:
    """In a child: sm2 crashes if the two types differ, and fi_av_open chooses the type for FI_AV_UNSPEC."""
    skip_without(provider, aiofabric.Caps.MSG)
    ended = run_in_child(TYPED, provider, where(provider, HOST) or "", type.name)
    assert (ended.status, ended.err) == (0, ""), ended
    refused, *opened = ended.out.splitlines()
    other = AvType.MAP if type is AvType.TABLE else AvType.TABLE
    assert refused.startswith(f"the type is {other}, and <Domain ")
    assert f"was opened for {type}" in refused
    assert opened == ["opened", "opened", "sent"]


TYPED = """
    import sys
    import anyio, aiofabric
    from aiofabric import AddressVector, AvType, Domain, DomainAttr, EndpointType, EpAttr, FabricAttr, Hints

    provider, node, name = sys.argv[1:]
    kind = AvType[name]
    hints = Hints(
        domain_attr=DomainAttr(av_type=kind),
        ep_attr=EpAttr(type=EndpointType.RDM),
        fabric_attr=FabricAttr(prov_name=provider),
    )

    async def main():
        with Domain(aiofabric.getinfo(node or None, hints=hints)[0]) as domain:
            for each in (AvType.MAP, AvType.TABLE):
                try:
                    AddressVector(domain, type=each).close()
                except ValueError as error:
                    print(error)
            AddressVector(domain).close()
            print("opened")
        options = {"provider": provider, "hints": hints}
        async with aiofabric.open_endpoint(EndpointType.RDM, node or None, **options) as one:
            async with aiofabric.open_endpoint(EndpointType.RDM, node or None, av_type=kind, **options) as other:
                print("opened")
                await one.send(b"sent", to=await one.add_peer(other.local_address))
                print((await other.recv()).decode())

    anyio.run(main)
"""


def test_a_removed_peer_is_no_peer_and_may_come_back(domain: Domain) -> None:
    with AddressVector(domain) as vector, AddressVector(domain) as other:
        peer = vector.insert(FIRST)
        with pytest.raises(ValueError, match="belongs to another address vector"):
            other.remove(peer)
        vector.remove(peer)
        assert FIRST not in vector
        for call in (vector.remove, vector.lookup):
            with pytest.raises(ValueError, match="was removed"):
                call(peer)
        again = vector.insert(FIRST)
        assert again is not peer
        assert vector.lookup(again) == FIRST


def test_hosts_and_services_are_looked_up(domain: Domain) -> None:
    with AddressVector(domain) as vector:
        peer = vector.insert_service("127.0.0.1", 7471)
        assert vector.lookup(peer) == FIRST
        assert vector.insert(FIRST) is peer


def insert_what_has_no_address(_: Parent, provider: str, kind: EndpointType) -> None:
    hints = Hints(fabric_attr=FabricAttr(prov_name=provider), ep_attr=EpAttr(type=kind))
    with Domain(aiofabric.getinfo("127.0.0.1", hints=hints)[0]) as domain, AddressVector(domain) as vector:
        with suppress(aiofabric.FabricError):  # udp takes the port 0
            vector.insert_service("127.0.0.1", 0)
        with pytest.raises(aiofabric.FabricError, match="fi_av_insertsym"):
            vector.insert_symmetric("127.0.0.1", 1, 65535, 2)


@pytest.mark.parametrize(
    ("provider", "kind"),
    [("tcp;ofi_rxm", EndpointType.RDM), ("tcp", EndpointType.RDM), ("udp", EndpointType.DGRAM)],
    ids=["rxm", "tcp", "udp"],
)
def test_a_service_without_an_address_is_an_error(
    child: Callable[..., Child], provider: str, kind: EndpointType
) -> None:
    """Before libfabric 2.5, the providers report that they inserted it, and crash when it is looked up."""
    if kind == EndpointType.RDM:
        skip_without(provider, aiofabric.Caps.MSG)
    child(insert_what_has_no_address, provider, kind).result()


def test_an_address_of_another_family_is_refused(domain: Domain) -> None:
    """The first address of a vector would decide how many bytes of each the provider takes."""
    with AddressVector(domain) as vector:
        assert vector.format == AddressFormat.SOCKADDR_IN
        with pytest.raises(ValueError, match="of another family: this domain's addresses are FI_SOCKADDR_IN"):
            vector.insert(Address.from_ip("::1", 7471).raw)
        assert vector.insert(FIRST).address == FIRST


@pytest.mark.parametrize("count", [-1, 1 << 60])
def test_a_count_whose_bytes_overflow_is_refused(domain: Domain, count: int) -> None:
    with pytest.raises(ValueError, match=r"count must be 0 to 4294967296 addresses"):
        AddressVector(domain, count=count)


def test_what_is_no_address_here_is_refused_before_c(domain: Domain) -> None:
    with AddressVector(domain) as vector:
        for wrong in ("127.0.0.1:7471", "fi_shm://someone", FIRST.raw[:-1], b"", b"x", bytes(28)):
            with pytest.raises(ValueError):
                vector.insert(wrong)
        assert len(vector) == 0


def test_a_closed_vector_says_so(domain: Domain) -> None:
    vector = AddressVector(domain)
    peer = vector.insert(FIRST)
    vector.close()
    vector.close()
    for call in (lambda: vector.insert(SECOND), lambda: vector.lookup(peer), lambda: vector.remove(peer)):
        with pytest.raises(ClosedResourceError):
            call()
