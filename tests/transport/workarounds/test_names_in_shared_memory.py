"""Names of endpoints in shared memory: whose they are, and which of their files are reserved and removed."""

# Doubles: a directory of the test instead of /dev/shm, the switch of the workaround, and a full file system.
# Privates: that directory is a constant of the module.

import errno
import mmap
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiofabric import Address, FabricError
from aiofabric.flags import AddressFormat
from aiofabric.transport.workarounds import shm_names as module
from aiofabric.transport.workarounds.shm_names import (
    is_own,
    name_for,
    native_form,
    own_namespace,
    path_of,
    process_of,
    remove,
    reserve_memory,
    sweep,
    take_over,
)

pytestmark = pytest.mark.once

NAMESPACE = own_namespace()
NO_PROCESS = 1 << 30  # above the largest process id


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_DIRECTORY", tmp_path)
    return tmp_path


def named(process: int, namespace: int = NAMESPACE, tail: str = "abcd") -> Address:
    return Address.from_str(f"fi_shm://aiofabric-{namespace:x}-{process}-{tail}")


def offer(address: Address | None = None, format: AddressFormat = AddressFormat.ADDR_STR) -> Any:
    return SimpleNamespace(addr_format=format, src_addr=address)


def test_a_new_name_is_unique_and_this_process_s() -> None:
    one, other = (name_for(offer(Address.from_str(f"fi_shm://{os.getpid()}"))) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one != other
    assert str(one).startswith(f"fi_shm://aiofabric-{NAMESPACE:x}-{os.getpid()}-")
    assert is_own(one)
    assert process_of(one) == os.getpid()


def test_a_chosen_name_stays() -> None:
    chosen = Address.from_str("fi_shm://4711x")
    assert name_for(offer(chosen)) == chosen


def test_a_file_that_nobody_maps_is_removed_before_its_name_is_used(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = directory / "left"
    left.write_bytes(bytes(8192))
    name = Address.from_str("fi_shm://left")
    in_use = pytest.raises(FabricError, match=str(os.getpid()))
    with left.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        with in_use:
            take_over(name)
        left.unlink()
        with in_use:  # a peer of an earlier endpoint
            take_over(name)
    left.write_bytes(bytes(8192))
    with monkeypatch.context() as changed:
        changed.setattr(module, "is_on", lambda _: False)
        take_over(name)
        assert left.exists()
    take_over(name)
    assert not left.exists()
    take_over(name)


def test_the_provider_gets_each_use_of_a_name_in_another_form(directory: Path) -> None:
    name = Address.from_str("fi_shm://again")
    assert native_form(name, is_open=False) == name
    for slashes in range(241):
        form = take_over(name)
        assert (str(form), path_of(form)) == (f"fi_shm://{'/' * slashes}again", directory / "again")
        assert native_form(name, is_open=True) == form
        if slashes < 240:
            assert str(native_form(name, is_open=False)) == f"fi_shm://{'/' * (slashes + 1)}again"
    assert native_form(Address.from_str("fi_shm://other"), is_open=False) == Address.from_str("fi_shm://other")
    with pytest.raises(FabricError, match=r"with 241 slashes .* too long\. Choose another name"):
        take_over(name)
    with pytest.raises(FabricError, match="too long"):
        native_form(name, is_open=False)


def test_endpoints_without_names_get_none() -> None:
    assert name_for(offer()) is None
    assert name_for(offer(Address.from_ip("127.0.0.1", 1), AddressFormat.SOCKADDR_IN)) is None


@pytest.mark.parametrize(
    ("name", "own", "process"),
    [
        (named(os.getpid()), True, os.getpid()),
        (named(os.getpid() + 1), False, os.getpid() + 1),
        (named(os.getpid(), NAMESPACE + 1), False, None),  # of a container that shares /dev/shm
        (Address.from_str("fi_shm://4711"), False, None),
        (Address.from_ip("127.0.0.1", 1), False, None),
    ],
    ids=["own", "of another process", "of another container", "of libfabric", "none"],
)
def test_a_name_says_whose_it_is(name: Address, own: bool, process: int | None) -> None:
    assert is_own(name) is own
    assert process_of(name) == process


def test_the_file_of_a_name(directory: Path) -> None:
    assert path_of(Address.from_str("fi_shm://there")) == directory / "there"
    assert path_of(Address(AddressFormat.ADDR_STR, b"fi_sm2://there\0\0")) == directory / "there"


# -- removal


@pytest.mark.parametrize("on", [True, False])
def test_the_file_of_an_own_name_is_removed(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_on", lambda name: on and name == "shm_files")
    ours, theirs = named(os.getpid()), named(os.getpid() + 1)
    for name in (ours, theirs):
        path_of(name).touch()
    remove(ours)
    remove(theirs)
    assert (path_of(ours).exists(), path_of(theirs).exists()) == (not on, True)
    remove(ours)  # without effect


@pytest.mark.parametrize("on", [True, False])
def test_files_of_processes_that_have_ended_are_removed(
    on: bool, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_on", lambda name: on and name == "shm_files")
    ended = named(NO_PROCESS)
    others = [named(os.getpid()), named(NO_PROCESS, NAMESPACE + 1), Address.from_str(f"fi_shm://other-{NO_PROCESS}-")]
    for name in (ended, *others):
        path_of(name).touch()
    (directory / "aiofabric-nothing").touch()
    sweep()
    assert path_of(ended).exists() is not on
    assert all(path_of(name).exists() for name in others)
    assert (directory / "aiofabric-nothing").exists()


def test_a_file_that_cannot_be_removed_stops_no_other(directory: Path) -> None:
    for tail in ("a", "b", "c"):
        path = path_of(named(NO_PROCESS, tail=tail))
        path.mkdir() if tail == "b" else path.touch()
    sweep()
    assert [path.name[-1] for path in directory.iterdir()] == ["b"]


# -- reservation


def test_all_pages_of_an_endpoint_are_allocated() -> None:
    ours, theirs = named(os.getpid()), named(os.getpid() + 1)
    for name in (ours, theirs):
        with path_of(name).open("wb") as file:
            file.truncate(1 << 20)
        reserve_memory(name)
    assert path_of(ours).stat().st_blocks * 512 >= 1 << 20
    assert path_of(theirs).stat().st_blocks == 0
    reserve_memory(named(os.getpid(), tail="gone"))  # the provider keeps it elsewhere


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EOPNOTSUPP])
def test_a_full_file_system_is_an_error_and_one_that_cannot_reserve_is_none(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allocate(*_: int) -> None:
        raise OSError(code, "no")

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    name = named(os.getpid())
    path_of(name).write_bytes(bytes(4096))
    if code == errno.ENOSPC:
        with pytest.raises(FabricError, match="an endpoint in shared memory takes 4096 bytes") as caught:
            reserve_memory(name)
        assert caught.value.errno == errno.ENOSPC
    else:
        reserve_memory(name)


def test_a_switched_off_workaround_reserves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_on", lambda _: False)
    name = named(os.getpid())
    with path_of(name).open("wb") as file:
        file.truncate(1 << 20)
    reserve_memory(name)
    assert path_of(name).stat().st_blocks == 0
