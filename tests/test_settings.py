"""Options and default flags of endpoints: values that a provider has, and errors for those that it lacks."""

# Privates: no provider gives this answer to fi_setopt.

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio import ClosedResourceError

import aiofabric
from aiofabric import (
    Datatype,
    EndpointOption,
    EndpointSettings,
    FabricError,
    HmemIface,
    HmemP2P,
    MessageEndpoint,
    NotSupportedError,
    OpFlags,
)
from tests.fixtures.providers import Pair

pytestmark = pytest.mark.anyio

SIZES = [
    "min_multi_recv", "cm_data_size", "buffered_min", "buffered_limit", "send_buf_size", "recv_buf_size", "tx_size",
    "rx_size", "max_msg_size", "max_tagged_size", "max_rma_size", "max_atomic_size", "inject_msg_size",
    "inject_tagged_size", "inject_rma_size", "inject_atomic_size",
]  # fmt: skip
PERMISSIONS = ["cuda_api_permitted", "shared_memory_permitted", "firewall_addr"]


@asynccontextmanager
async def sockets_pair() -> AsyncIterator[tuple[MessageEndpoint, MessageEndpoint]]:
    """The one provider here that has operation flags and the size_left calls."""
    accepted = []

    async def accept(listener: aiofabric.Listener) -> None:
        accepted.append(await (await listener.accept_request()).accept())

    async with aiofabric.listen("127.0.0.1", provider="sockets") as listener, anyio.create_task_group() as tg:
        tg.start_soon(accept, listener)
        active = await aiofabric.connect(listener.address, provider="sockets")
    async with active, accepted[0] as passive:
        yield active, passive


def test_every_option_of_the_manual_is_an_attribute() -> None:
    named = {option.name.lower() for option in EndpointOption}
    assert {name.removeprefix("fi_") for name in named} - {"xpu_trigger"} <= set(dir(EndpointSettings))


async def test_what_tcp_has(pair: Pair) -> None:
    async with pair() as (active, _):
        assert active.settings.cm_data_size == 256
        with pytest.raises(
            NotSupportedError, match=r"The provider tcp \(FI_EP_MSG\) does not have FI_OPT_CM_DATA_SIZE"
        ):
            active.settings.cm_data_size = 512  # read only
        with pytest.raises(ValueError, match="257 bytes; this provider carries at most 256"):
            await aiofabric.connect(active.peer_address, param=bytes(257))


@pytest.mark.parametrize("name", [*SIZES, *PERMISSIONS, "hmem_p2p"])
async def test_an_option_is_there_or_the_provider_says_no(pair: Pair, name: str) -> None:
    async with pair() as (active, _):
        refusal = None
        try:
            value = getattr(active.settings, name)
        except NotSupportedError as error:
            refusal = error
        if refusal is None:
            kind = HmemP2P if name == "hmem_p2p" else bool if name in PERMISSIONS else int
            assert isinstance(value, kind)
        else:
            assert refusal.call == "fi_getopt"
            assert f"FI_OPT_{'FI_' * (name == 'hmem_p2p')}{name.upper()}" in str(refusal)


async def test_an_option_that_is_set_reads_back() -> None:
    async with sockets_pair() as (active, _):
        active.settings.min_multi_recv = 4096
        assert active.settings.min_multi_recv == 4096


async def test_prepare_sets_options_before_the_endpoint_is_enabled() -> None:
    seen: list[int] = []

    def prepare(settings: EndpointSettings) -> None:
        seen.append(settings.min_multi_recv)
        settings.min_multi_recv = 8192

    async with aiofabric.listen("127.0.0.1", provider="sockets") as listener, anyio.create_task_group() as tg:

        async def refuse() -> None:
            (await listener.accept_request()).reject()

        tg.start_soon(refuse)
        # Refused rather than cancelled: a cancelled connect leaves a socket with the provider's thread now and then.
        with pytest.raises(aiofabric.FabricConnectionRefusedError):
            await aiofabric.connect(listener.address, provider="sockets", prepare=prepare)
    assert seen == [64]


async def test_operation_flags() -> None:
    async with sockets_pair() as (active, passive):
        active.settings.tx_flags = OpFlags.DELIVERY_COMPLETE
        assert active.settings.tx_flags == OpFlags.DELIVERY_COMPLETE
        active.settings.rx_flags = OpFlags(0)
        assert active.settings.rx_flags == OpFlags(0)
        await active.send(bytes(1000))
        assert len(await passive.recv()) == 1000


async def test_tcp_has_no_operation_flags_to_change(pair: Pair) -> None:
    async with pair() as (active, _):
        with pytest.raises(NotSupportedError, match="does not have FI_GETOPSFLAG"):
            _ = active.settings.tx_flags
        with pytest.raises(NotSupportedError, match="does not have FI_SETOPSFLAG"):
            active.settings.rx_flags = OpFlags.COMPLETION


async def test_size_left() -> None:
    async with sockets_pair() as (active, _):
        assert active.settings.tx_size_left > 0
        assert active.settings.rx_size_left > 0


async def test_tcp_does_not_count_what_is_left(pair: Pair) -> None:
    async with pair() as (active, _):
        for call in ("tx_size_left", "rx_size_left"):
            with pytest.raises(NotSupportedError, match=f"fi_{call}.*FI_ENOSYS.*tcp"):
                getattr(active.settings, call)


@pytest.mark.parametrize("choice", HmemP2P)
async def test_transfers_past_the_host_are_chosen_or_the_provider_says_no(pair: Pair, choice: HmemP2P) -> None:
    async with pair() as (active, _):
        refusal = ""
        try:
            active.settings.hmem_p2p = choice
        except NotSupportedError as error:
            refusal = str(error)
        assert "does not have FI_OPT_FI_HMEM_P2P" in refusal or active.settings.hmem_p2p == choice


async def test_no_provider_here_is_triggered_by_a_device(pair: Pair) -> None:
    async with pair() as (active, _):
        with pytest.raises(NotSupportedError, match="FI_OPT_XPU_TRIGGER"):
            active.settings.xpu_trigger(HmemIface.CUDA)
    assert Datatype.UINT64 in Datatype


async def test_a_listener_has_settings_too(provider: str) -> None:
    async with aiofabric.listen("127.0.0.1", provider=provider) as listener:
        assert listener.settings.cm_data_size == 256
        with pytest.raises(NotSupportedError, match="does not have FI_BACKLOG"):
            listener.settings.set_backlog(16)


async def test_settings_of_a_closed_endpoint_are_refused(pair: Pair) -> None:
    async with pair() as (active, _):
        settings = active.settings
    with pytest.raises(ClosedResourceError):
        _ = settings.cm_data_size
    with pytest.raises(ClosedResourceError):
        settings.set_backlog(1)
    with pytest.raises(ClosedResourceError):
        _ = settings.rx_size_left


def test_the_crash_of_an_early_option_is_fenced() -> None:
    """fi_enable makes the memory of shm's options. A query before that ends the process, so none is made."""
    from tests.fixtures.children import run_in_child

    ended = run_in_child("""
        from aiofabric import Domain, EndpointSettings, EndpointType, EpAttr, FabricAttr, FabricError, Hints, getinfo
        from aiofabric._ffi import ffi, lib
        from aiofabric.resource import Handle

        hints = Hints(fabric_attr=FabricAttr(prov_name="shm"), ep_attr=EpAttr(type=EndpointType.RDM))
        info = getinfo(hints=hints)[0]
        with Domain(info) as domain:
            out = ffi.new("struct fid_ep **")
            assert lib.fi_endpoint(domain._handle.fid, info.native, out, ffi.NULL) == 0
            settings = EndpointSettings(Handle("endpoint", out[0], domain._handle), info, enabled=False)
            for change in (lambda: settings.min_multi_recv, lambda: setattr(settings, "min_multi_recv", 1)):
                try:
                    change()
                except FabricError as error:
                    print(error)
    """)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.count("crashes when FI_OPT_MIN_MULTI_RECV is used before the endpoint is enabled") == 2


async def test_what_cannot_be_changed_now_is_no_lack(pair: Pair) -> None:
    """An answer other than "I have no such option" stays what it is."""
    async with pair() as (active, _):
        with pytest.raises(FabricError) as caught:
            active.settings._answer(-aiofabric._ffi.constants.FI_EOPBADSTATE, "fi_setopt", "FI_OPT_BUFFERED_MIN")
        assert not isinstance(caught.value, NotSupportedError)


@pytest.mark.parametrize("provider", ["tcp", "shm"])
async def test_a_listener_has_no_queues(provider: str) -> None:
    """cffi's TypeError told of types in C."""
    async with aiofabric.listen("127.0.0.1", 0, provider=provider) as listener:
        for name in ("tx_size_left", "rx_size_left"):
            with pytest.raises(
                NotSupportedError, match=r"A listener has no transmit or receive queues|has no native listeners"
            ):
                getattr(listener.settings, name)
