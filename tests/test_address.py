"""Addresses have the bytes and the text of libfabric's, and compare equal if they mean the same."""

import socket

import pytest

from aiofabric import Address, AddressFormat
from aiofabric._ffi import ffi
from aiofabric.address import is_numeric

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [
        ("127.0.0.1", 7471, "fi_sockaddr_in://127.0.0.1:7471"),
        ("10.31.6.12", 0, "fi_sockaddr_in://10.31.6.12:0"),
        ("::1", 65535, "fi_sockaddr_in6://[::1]:65535"),
        ("fe80::6:12%1", 7471, "fi_sockaddr_in6://[fe80::6:12%1]:7471"),
    ],
)
def test_an_ip_address_goes_round(host: str, port: int, text: str) -> None:
    address = Address.from_ip(host, port)
    assert (address.host, address.port, str(address)) == (host, port, text)
    assert Address.from_str(text) == address
    assert Address(address.format, address.raw) == address


def test_the_bytes_are_the_systems() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    raw = Address.from_ip("127.0.0.1", port).raw
    assert raw == socket.AF_INET.to_bytes(2, "little") + port.to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
    raw = Address.from_ip("::1", port).raw
    assert raw == socket.AF_INET6.to_bytes(2, "little") + port.to_bytes(2, "big") + bytes(19) + b"\1" + bytes(4)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("fi_sockaddr://10.31.6.12:7471?qos=3", "10.31.6.12", 7471),
        ("fi_sockaddr_in6://[fe80::6:12]:7471", "fe80::6:12", 7471),
        ("fi_sockaddr://[::1]:80/", "::1", 80),
        ("fi_sockaddr_in://:7471", "0.0.0.0", 7471),
    ],
)
def test_the_manuals_texts_are_read(text: str, host: str, port: int) -> None:
    address = Address.from_str(text)
    assert (address.host, address.port) == (host, port)


def test_a_text_address_is_its_text() -> None:
    address = Address.from_str("fi_shm://42:1")
    assert address.format is AddressFormat.ADDR_STR
    assert address.raw == b"fi_shm://42:1\0"
    assert str(address) == "fi_shm://42:1"
    assert (address.host, address.port) == (None, None)
    assert address == Address(AddressFormat.ADDR_STR, b"fi_shm://42:1")


@pytest.mark.parametrize("raw", [bytes(range(4)), Address.from_ip("127.0.0.1", 7471).raw], ids=["bytes", "like IPv4"])
@pytest.mark.parametrize("form", [AddressFormat.FORMAT_UNSPEC, AddressFormat.ADDR_EFA])
def test_an_opaque_address_has_no_host_and_shows_its_bytes(form: AddressFormat, raw: bytes) -> None:
    address = Address(form, raw)
    assert (address.host, address.port) == (None, None)
    assert str(address) == f"{form} {raw.hex()}"
    assert repr(address) == f"<Address {form} {raw.hex()}>"


def test_padding_does_not_count() -> None:
    clean = Address.from_ip("127.0.0.1", 5)
    assert Address(AddressFormat.SOCKADDR_IN, clean.raw[:8] + b"\xff" * 8) == clean


def test_a_plain_sockaddr_tells_its_family_itself() -> None:
    address = Address(AddressFormat.SOCKADDR, Address.from_ip("::1", 9).raw)
    assert (address.family, address.host, address.port) == (socket.AF_INET6, "::1", 9)
    assert address == Address.from_ip("::1", 9)


def test_addresses_are_keys_and_have_an_order() -> None:
    one, two = Address.from_ip("127.0.0.1", 1), Address.from_ip("127.0.0.1", 2)
    assert {one: "a"}[Address.from_ip("127.0.0.1", 1)] == "a"
    assert sorted([two, one]) == [one, two]


def test_native_bytes_are_copied() -> None:
    memory = ffi.new("char[]", Address.from_ip("127.0.0.1", 7).raw)
    address = Address.from_native(AddressFormat.SOCKADDR_IN, memory, 16)
    ffi.memmove(memory, bytes(16), 16)
    assert address == Address.from_ip("127.0.0.1", 7)
    assert Address.from_native(AddressFormat.SOCKADDR_IN, ffi.NULL, 0) is None


@pytest.mark.parametrize(
    "wrong",
    [lambda: Address.from_ip("localhost"), lambda: Address.from_ip("::1", 65536), lambda: Address.from_str("x")],
)
def test_what_is_no_address_is_refused(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(ValueError, match=r"localhost|65536|format://"):
        wrong()


@pytest.mark.parametrize(
    ("node", "numeric"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("fe80::1%eth0", True),
        ("17", True),
        ("0xff", True),
        ("localhost", False),
        ("b17", False),
    ],
)
def test_numbers_are_told_from_names(node: str, numeric: bool) -> None:
    assert is_numeric(node) is numeric


@pytest.mark.parametrize("label", [AddressFormat.SOCKADDR_IB, AddressFormat.SOCKADDR])
@pytest.mark.parametrize("address", [Address.from_ip("10.77.0.1", 7), Address.from_ip("::1", 7)], ids=str)
def test_an_ip_address_with_another_label_is_an_ip_address(address: Address, label: AddressFormat) -> None:
    """verbs labels the address of a client so: 1.17 as InfiniBand's, 2.x as of any family."""
    assert Address(label, address.raw) == address
    if address.family == socket.AF_INET:
        assert Address(label, address.raw[:-1] + b"\7") == address  # the padding may have any content
    native = Address(AddressFormat.SOCKADDR_IB, b"\x1b\0" + bytes(46))
    assert native.format is AddressFormat.SOCKADDR_IB
