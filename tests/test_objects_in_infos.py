"""Objects that hints and infos name (a passive endpoint, a domain, a fabric) may close before the info is used."""

from __future__ import annotations

from textwrap import dedent

import pytest
from anyio import ClosedResourceError

from aiofabric import Domain, DomainAttr, EndpointType, EpAttr, Fabric, FabricAttr, Hints, Info, getinfo
from aiofabric._ffi import ffi
from tests.fixtures.children import run_in_child

HERE = "127.0.0.1"

_CHILD = """
import asyncio
import aiofabric
from anyio import ClosedResourceError
from aiofabric import EndpointType, EpAttr, FabricAttr, Hints, getinfo

HERE = "127.0.0.1"

def found(**more):
    hints = Hints(ep_attr=EpAttr(type=EndpointType.MSG), fabric_attr=FabricAttr(prov_name="tcp"), **more)
    return getinfo(HERE, 7471, hints=hints)[0]
"""


def tcp(**more: object) -> Hints:
    """Hints for connected endpoints of tcp."""
    return Hints(ep_attr=EpAttr(type=EndpointType.MSG), fabric_attr=FabricAttr(prov_name="tcp"), **more)  # type: ignore[arg-type]


@pytest.fixture
def offer() -> Info:
    return getinfo(HERE, 7471, hints=tcp())[0]


@pytest.mark.parametrize("given", ["reservation", "reservation.native"])
def test_an_info_whose_handle_was_closed_is_refused(given: str) -> None:
    """libfabric would follow the pointer: with 1.17 and 2.5.1 the process ended."""
    ended = run_in_child(
        _CHILD
        + dedent(f"""
        async def main():
            async with aiofabric.reserve(HERE, provider="tcp") as reservation:
                info = found(handle={given})
                assert info.handle == reservation.native, info.handle
                copies = [info, info.duplicate(), info.replace(src_addr=None), info.replace(caps=info.caps)]
                info.trim()
            for each in copies:
                assert each.handle is None
                try:
                    await aiofabric.connect(HERE, 7471, info=each)
                except ClosedResourceError as error:
                    print(error)

        asyncio.run(main())
    """)
    )
    assert ended.status == 0, ended
    assert ended.out.splitlines() == ["this Reservation is closed"] * 4


def test_the_info_of_an_answered_request_names_it_no_more() -> None:
    """With 1.17 the process ended."""
    ended = run_in_child(
        _CHILD
        + dedent("""
        from contextlib import suppress

        async def main():
            async with aiofabric.listen(HERE, 0, provider="tcp") as listener:
                async def client():
                    with suppress(aiofabric.FabricError):
                        async with await aiofabric.connect(listener.address):
                            pass
                for answer in ("accept", "reject"):
                    task = asyncio.create_task(client())
                    request = await listener.accept_request()
                    if answer == "accept":
                        await (await request.accept()).aclose()
                    else:
                        request.reject()
                    await task
                    assert request.info.handle is None
                    with suppress(aiofabric.FabricError):
                        await aiofabric.connect(HERE, 1, info=request.info)
                    async with aiofabric.listen(HERE, 0, info=request.info):
                        pass
            print("alive")

        asyncio.run(main())
    """)
    )
    assert ended.status == 0, ended
    assert "alive" in ended.out


def test_hints_with_a_closed_object_are_refused(offer: Info) -> None:
    with Domain(offer) as domain:
        fabric = domain.fabric
        pointers = domain.native, fabric.native
        for opened in (domain, domain.native):
            assert getinfo(HERE, 7471, hints=tcp(domain_attr=DomainAttr(domain=opened)))
    for each in (domain, fabric):
        with pytest.raises(ClosedResourceError, match="is closed"):
            getinfo(hints=Hints(handle=each))
    with pytest.raises(ClosedResourceError, match="this Domain is closed"):
        getinfo(hints=tcp(domain_attr=DomainAttr(domain=domain)))
    for pointer in pointers:
        with pytest.raises(ValueError, match="points to no object that is open in aiofabric"):
            getinfo(hints=Hints(handle=pointer))
    with pytest.raises(ValueError, match="points to no object that is open in aiofabric"):
        getinfo(hints=Hints(fabric_attr=FabricAttr(fabric=pointers[1])))


def test_objects_in_hints_must_be_of_libfabric() -> None:
    for odd in (5.0, object(), "text"):
        with pytest.raises(TypeError, match="domain must be an open object of libfabric"):
            getinfo(hints=Hints(domain_attr=DomainAttr(domain=odd)))
        with pytest.raises(TypeError, match="fabric must be an open object of libfabric"):
            getinfo(hints=Hints(fabric_attr=FabricAttr(fabric=odd)))


def test_a_closed_handle_is_replaced_by_another(offer: Info) -> None:
    with Fabric(offer) as fabric:
        info = offer.replace(handle=fabric)
    assert info.handle is None
    with Fabric(info.replace(handle=None)) as fabric:
        assert info.replace(handle=fabric).handle == ffi.cast("struct fid *", fabric.native)
