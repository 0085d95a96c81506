"""Raw addresses of devices, in the sizes of libfabric's sources, go over the OOB socket and through queries."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from aiofabric import Address, AddressFormat
from aiofabric.address_vector import AddressVector
from aiofabric.cm.preface import MAX_PARAM
from aiofabric.transport.virtual.address_query import _HEAD, QUERY_SIZE
from aiofabric.transport.virtual.oob_socket import MAX_FRAME
from aiofabric.transport.virtual.protocol import Hello

from ...fixtures.methods import methods_of

# Privates: the length of what precedes the address in a query.

pytestmark = pytest.mark.once

UCX = AddressFormat(16)  # unknown to the headers of 1.17


class Raw(NamedTuple):
    form: AddressFormat
    size: int
    first: bytes = b"\xfe\x80"


ADDRESSES = {
    "efa": Raw(AddressFormat.ADDR_EFA, 32),  # struct efa_ep_addr
    "cxi": Raw(AddressFormat.ADDR_CXI, 8),  # struct cxip_addr
    "psm3": Raw(AddressFormat.ADDR_PSMX3, 32),  # struct psmx3_ep_name
    "psm2": Raw(AddressFormat.ADDR_PSMX2, 16),  # struct psmx2_ep_name
    "opx": Raw(AddressFormat.ADDR_OPX, 8),  # union fi_opx_addr
    "opx, extended": Raw(AddressFormat.ADDR_OPX, 16),  # struct fi_opx_extended_addr
    "ucx": Raw(UCX, 1024),  # FI_UCX_MAX_NAME_LEN
    "verbs": Raw(AddressFormat.SOCKADDR_IB, 48, b"\x1b\0"),  # struct sockaddr_ib, AF_IB
    "verbs, datagrams": Raw(AddressFormat.ADDR_IB_UD, 32),
}


@pytest.fixture(params=ADDRESSES)
def address(request: pytest.FixtureRequest) -> Address:
    form, size, first = ADDRESSES[request.param]
    return Address(form, first + bytes(number % 251 for number in range(size - len(first))))


def test_an_address_goes_through_a_handshake(address: Address) -> None:
    param = bytes(MAX_PARAM)
    hello = Hello(1, 1, 0, 7, 3, 4096, 64, 0, address.raw, param)
    packed = hello.pack()
    assert len(packed) <= MAX_FRAME
    assert Hello.unpack(packed) == hello


def test_an_address_fits_a_query(address: Address) -> None:
    assert _HEAD.size + len(address.raw) <= QUERY_SIZE


@methods_of(AddressVector, "fit")
class Vector(SimpleNamespace):
    """Its domain has addresses of one format."""

    fit: Any


def test_the_address_vector_takes_it_as_it_is(address: Address) -> None:
    vector = Vector(format=address.format, domain=SimpleNamespace(info=SimpleNamespace(src_addr=address)))
    assert vector.fit(address) == address
    assert vector.fit(address.raw) == address
    assert str(address)
    other = Address(AddressFormat.ADDR_GNI, address.raw)
    with pytest.raises(ValueError, match="has the format FI_ADDR_GNI; this domain's addresses are"):
        vector.fit(other)
