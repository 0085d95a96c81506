"""Codes become exceptions that ordinary code catches, with a text that helps."""

# Privates: the table of cures is compared with the texts that errors show.

import errno
import pickle
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import aiofabric
from aiofabric import errors
from aiofabric._ffi import constants as C
from aiofabric._ffi import ffi, lib
from aiofabric.errors import check, error_name, from_errno
from aiofabric.resource import Handle
from tests.fixtures.children import run_in_child
from tests.fixtures.internals import handle_of

SITUATIONS = [
    (C.FI_ECONNREFUSED, aiofabric.FabricConnectionRefusedError, ConnectionRefusedError),
    (C.FI_ECONNRESET, aiofabric.FabricConnectionResetError, ConnectionResetError),
    (C.FI_ECONNABORTED, aiofabric.FabricConnectionAbortedError, ConnectionAbortedError),
    (errno.EPIPE, aiofabric.FabricBrokenPipeError, BrokenPipeError),
    (C.FI_ESHUTDOWN, aiofabric.FabricBrokenPipeError, BrokenPipeError),
    (C.FI_ENOTCONN, aiofabric.FabricBrokenPipeError, ConnectionError),
    (C.FI_EHOSTUNREACH, aiofabric.UnreachableError, ConnectionError),
    (C.FI_ENETUNREACH, aiofabric.UnreachableError, OSError),
    (C.FI_ETIMEDOUT, aiofabric.FabricTimeoutError, TimeoutError),
    (C.FI_EKEYREJECTED, aiofabric.RemoteAccessError, PermissionError),
    (C.FI_ETRUNC, aiofabric.TruncatedMessageError, OSError),
    (C.FI_EMSGSIZE, aiofabric.MessageTooLongError, OSError),
    (C.FI_EOVERRUN, aiofabric.QueueOverrunError, OSError),
    (C.FI_ENOSYS, aiofabric.NotSupportedError, OSError),
    (C.FI_EOPNOTSUPP, aiofabric.NotSupportedError, OSError),
    (C.FI_ENOPROTOOPT, aiofabric.NotSupportedError, OSError),
    (C.FI_EBADFLAGS, aiofabric.NotSupportedError, OSError),
    (C.FI_EINVAL, aiofabric.FabricError, OSError),
]


@pytest.mark.parametrize(("code", "situation", "builtin"), SITUATIONS)
def test_a_code_becomes_its_situation(code: int, situation: type[OSError], builtin: type[OSError]) -> None:
    with pytest.raises(builtin) as caught:
        check(-code, "fi_something")
    assert type(caught.value) is situation
    assert caught.value.errno == code
    assert isinstance(caught.value, aiofabric.FabricError)


@pytest.mark.parametrize("rc", [0, 1, 88])
def test_a_success_is_returned(rc: int) -> None:
    assert check(rc, "fi_cq_read") == rc


@pytest.mark.parametrize("code", [C.FI_EACCES, C.FI_EPERM, C.FI_ENOKEY])
@pytest.mark.parametrize("call", ["fi_read", "fi_writemsg", "fi_inject_write", "fi_fetch_atomic", "fi_atomicv"])
def test_access_denied_is_remote_for_rma_and_local_elsewhere(code: int, call: str) -> None:
    assert type(from_errno(code, call)) is aiofabric.RemoteAccessError
    assert type(from_errno(code, "fi_mr_reg")) is aiofabric.FabricError


def test_the_text_says_what_happened_with_whom_and_what_to_do() -> None:
    error = from_errno(
        C.FI_ECONNREFUSED,
        "fi_connect",
        peer="127.0.0.1:7471",
        provider_errno=-7,
        provider_text="no such port",
        detail="The listener closed.",
    )
    assert str(error) == (
        "fi_connect with 127.0.0.1:7471: Connection refused [FI_ECONNREFUSED], provider says no such port. "
        f"The listener closed. {error.cure}"
    )
    assert (error.call, error.peer, error.provider_errno) == ("fi_connect", "127.0.0.1:7471", -7)


@pytest.mark.parametrize("code", sorted({code for code, _, _ in SITUATIONS} - {C.FI_EINVAL}))
def test_every_situation_has_a_cure(code: int) -> None:
    assert from_errno(code, "call").cure


@pytest.mark.parametrize("code", [C.FI_EADDRINUSE, C.FI_ENOMEM, C.FI_EBUSY, C.FI_ENOKEY])
def test_common_codes_without_a_class_have_one_too(code: int) -> None:
    assert errors._CURES[code] in str(from_errno(code, "fi_listen"))


@pytest.mark.parametrize(
    ("host", "told"),
    [("fe80::1", True), ("febf::1", True), ("fe80::1%1", False), ("2001:fe80::1", False), ("::1", False)],
)
def test_a_link_local_address_without_its_interface_is_named_as_the_cause(host: str, told: bool) -> None:
    address = aiofabric.Address.from_ip(host, 7471)
    for error in (
        from_errno(C.FI_EINVAL, "fi_connect", peer=address),
        from_errno(C.FI_EINVAL, f"fi_listen at {address}"),
    ):
        assert ("as in fe80::1%eth0" in str(error)) is told
    assert "interface" not in str(from_errno(C.FI_EADDRINUSE, "fi_connect", peer=address))


def test_extra_facts_have_a_resting_value() -> None:
    assert aiofabric.FabricConnectionRefusedError(C.FI_ECONNREFUSED, "fi_connect").param == b""
    truncated = aiofabric.TruncatedMessageError(C.FI_ETRUNC, "fi_recv")
    assert (truncated.size, truncated.limit) == (None, None)


@pytest.mark.parametrize(
    ("code", "name"),
    [(C.FI_ETRUNC, "FI_ETRUNC"), (errno.ECONNRESET, "FI_ECONNRESET"), (31337, "FI_31337")],
)
def test_a_code_has_its_name(code: int, name: str) -> None:
    assert error_name(code) == name


def test_an_error_crosses_processes() -> None:
    error = aiofabric.FabricConnectionRefusedError(C.FI_ECONNREFUSED, "fi_connect", peer="somebody")
    error.param = b"go away"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.param, again.errno) == (str(error), b"go away", error.errno)


def test_words_are_libfabrics() -> None:
    assert from_errno(C.FI_ETRUNC, "fi_recv").strerror == "Truncation error"


def test_words_come_without_a_library_too() -> None:
    child = run_in_child("""
        from aiofabric import _ffi, errors
        assert str(errors.from_errno(111, "fi_connect")).startswith("fi_connect: Connection refused [FI_ECONN")
        assert str(errors.from_errno(265, "fi_recv")).startswith("fi_recv: ETRUNC [FI_ETRUNC]")
        assert not _ffi.is_loaded()
        """)
    assert child.status == 0, child.err


# -- errors of fi_endpoint's and fi_getinfo's pages


@pytest.fixture
def domain() -> Iterator[aiofabric.Domain]:
    hints = aiofabric.Hints(
        fabric_attr=aiofabric.FabricAttr(prov_name="udp"), ep_attr=aiofabric.EpAttr(type=aiofabric.EndpointType.DGRAM)
    )
    info = aiofabric.getinfo("127.0.0.1", 0, flags=aiofabric.GetInfoFlags.SOURCE, hints=hints)[0]
    with aiofabric.Domain(info) as domain:
        yield domain


@pytest.fixture
def native(domain: aiofabric.Domain) -> Iterator[Any]:
    """An endpoint that nothing is bound to, as aiofabric never leaves one."""
    out = ffi.new("struct fid_ep **")
    check(lib.fi_endpoint(domain.native, domain.info.native, out, ffi.NULL), "fi_endpoint")
    with closing(Handle("endpoint", out[0], handle_of(domain))):
        yield out[0]


def test_an_endpoint_without_queues_is_not_enabled(native: Any, domain: aiofabric.Domain) -> None:
    with pytest.raises(aiofabric.FabricError, match=r"FI_ENOCQ|FI_EOPBADSTATE"):
        check(lib.fi_enable(native), "fi_enable")
    with aiofabric.AddressVector(domain) as vector:
        check(lib.fi_ep_bind(native, vector.native, 0), "fi_ep_bind")
        with pytest.raises(aiofabric.FabricError, match="FI_ENOCQ"):
            check(lib.fi_enable(native), "fi_enable")


def test_a_queue_is_not_bound_for_what_no_queue_reports(native: Any, domain: aiofabric.Domain) -> None:
    with (
        aiofabric.CompletionQueue(domain) as queue,
        pytest.raises(aiofabric.NotSupportedError, match="FI_EBADFLAGS"),
    ):
        check(lib.fi_ep_bind(native, queue.native, C.FI_MULTICAST), "fi_ep_bind")


def test_what_is_in_use_is_not_closed(domain: aiofabric.Domain, caplog: pytest.LogCaptureFixture) -> None:
    Handle("fabric", domain.fabric.native, None).close()
    assert "the provider keeps it open (FI_EBUSY)" in caplog.text


@pytest.mark.parametrize("name", ["EDOMAIN", "ENOMEM", "EOPBADSTATE", "EMSGSIZE", "EBUSY", "ENOCQ", "ECANCELED"])
def test_an_error_has_libfabric_s_words_and_its_name(name: str) -> None:
    """Codes of the manual that no provider here need return."""
    code = getattr(C, f"FI_{name}")
    words = ffi.string(lib.fi_strerror(code)).decode()
    with pytest.raises(aiofabric.FabricError) as caught:
        check(-code, "fi_something")
    assert (caught.value.errno, caught.value.strerror) == (code, words)
    assert f"{words} [FI_{name}]" in str(caught.value)
    assert "Unknown" not in words
