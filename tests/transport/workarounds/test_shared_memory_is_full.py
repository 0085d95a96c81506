"""Hazard: a page of /dev/shm cannot be allocated, which is a SIGBUS. The endpoint is refused instead."""

# Doubles: /dev/shm is full at a chosen moment.

import errno
import os

import pytest

import aiofabric
from aiofabric import Address, AvType, EndpointType, FabricAttr, FabricError, Hints, RdmEndpoint, getinfo
from aiofabric.flags import AddressFormat
from aiofabric.transport.opening.options import EndpointOptions
from aiofabric.transport.workarounds.shm_names import own_namespace, path_of, reserve_memory
from tests.fixtures.children import run_in_child
from tests.fixtures.providers import require

pytestmark = pytest.mark.anyio

SMALL = """
    import ctypes, os, sys
    libc = ctypes.CDLL(None, use_errno=True)
    NEWNS, PRIVATE = 0x20000, (1 << 18) | (1 << 14)
    size = b"size=%dm" % (16 * os.cpu_count() + 8)
    if libc.unshare(NEWNS) or libc.mount(b"none", b"/", None, PRIVATE, None) or libc.mount(
        b"none", b"/dev/shm", b"tmpfs", 0, size
    ):
        sys.exit(77)  # not allowed here

    import anyio, aiofabric
    from aiofabric import AvType, FabricAttr, FabricError, Hints, NoProviderError, RdmEndpoint, getinfo
    from aiofabric.transport.opening.options import EndpointOptions

    async def main():
        hints = Hints(fabric_attr=FabricAttr(prov_name="shm"))
        info = getinfo(hints=hints)[0]
        with open("/dev/shm/other", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, (16 * os.cpu_count() + 4) << 20)
        try:
            RdmEndpoint(info, None, EndpointOptions(), AvType.UNSPEC)
        except FabricError as error:
            print(error)
        assert os.listdir("/dev/shm") == ["other"]
        try:
            getinfo(hints=hints)
        except NoProviderError as error:
            print(error)

    anyio.run(main)
"""


def test_an_endpoint_that_does_not_fit_is_refused() -> None:
    require("shm")
    ended = run_in_child(SMALL)
    if ended.status == 77:
        pytest.skip("this user may not mount a small /dev/shm")
    assert ended.status == 0, ended
    refused, missing = ended.out.splitlines()
    assert "/dev/shm is full" in refused
    assert " are available" in refused
    assert "/dev/shm has some 16 MiB for each" in missing


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_refusal_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    require("shm")
    info = getinfo(hints=Hints(fabric_attr=FabricAttr(prov_name="shm")))[0]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = set(os.listdir("/dev/shm"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(FabricError, match="/dev/shm is full: an endpoint in shared memory takes"):
            RdmEndpoint(info, None, EndpointOptions(), AvType.UNSPEC)
    mine = f"-{os.getpid()}-"
    assert not [name for name in set(os.listdir("/dev/shm")) - before if mine in name]


def test_without_the_workaround_no_pages_are_allocated() -> None:
    require("shm")
    program = """
        import os, subprocess, sys, anyio, aiofabric
        from pathlib import Path
        from aiofabric.transport.workarounds.shm_names import own_namespace

        ended = subprocess.Popen(["true"])
        ended.wait()
        left = Path(f"/dev/shm/aiofabric-{own_namespace():x}-{ended.pid}-00000000")
        left.touch()

        async def main():
            async with aiofabric.open_endpoint(aiofabric.EndpointType.RDM, provider="shm") as endpoint:
                status = next(Path("/dev/shm").glob(f"aiofabric-*-{os.getpid()}-*")).stat()
                print(status.st_blocks * 512 >= status.st_size)
                if sys.argv[1] == "on":  # else another process of the tests may remove the file
                    assert not left.exists()

        try:
            anyio.run(main)
        finally:
            left.unlink(missing_ok=True)
    """
    for state, words, seen in (("off", "no-shm_files", "False\n"), ("on", "", "True\n")):
        ended = run_in_child(program, state, AIOFABRIC_WORKAROUNDS=words)
        assert (ended.status, ended.out) == (0, seen), ended.err


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_all_pages_are_there_from_the_start() -> None:
    require("shm")
    async with aiofabric.open_endpoint(EndpointType.RDM, provider="shm") as endpoint:
        status = os.stat(path_of(endpoint.local_address))
        assert status.st_blocks * 512 >= status.st_size


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_file_system_that_reserves_no_pages_is_used_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    require("shm")
    info = getinfo(hints=Hints(fabric_attr=FabricAttr(prov_name="shm")))[0]

    def unsupported(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    with RdmEndpoint(info, None, EndpointOptions(), AvType.UNSPEC) as endpoint:
        assert endpoint.state == "open"


def test_memory_that_the_provider_keeps_elsewhere_is_not_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    reserved: list[object] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda *call: reserved.append(call))
    name = f"fi_shm://aiofabric-{own_namespace():x}-{os.getpid()}-nowhere"
    reserve_memory(Address(AddressFormat.ADDR_STR, name.encode()))
    assert reserved == []
