"""Supported features work. A feature that the library or the provider does not have is refused with a sentence."""

import pytest

from aiofabric import (
    Caps,
    EndpointType,
    EpAttr,
    FabricAttr,
    Feature,
    Hints,
    Info,
    NotSupportedError,
    Quirk,
    getinfo,
    headers_version,
    library_path,
    library_version,
)
from aiofabric.features import describe, has, quirks, require
from tests.fixtures.children import run_in_child


def offer(provider: str, kind: EndpointType) -> Info:
    hints = Hints(ep_attr=EpAttr(type=kind), fabric_attr=FabricAttr(prov_name=provider))
    return getinfo(hints=hints)[0]


@pytest.mark.parametrize("feature", Feature, ids=lambda feature: feature.name)
def test_a_feature_needs_the_headers_and_the_library(feature: Feature) -> None:
    there = library_version() >= feature.since and headers_version() >= feature.since
    assert has(feature) is there
    if there:
        require(feature)
        return
    with pytest.raises(NotSupportedError) as caught:
        require(feature)
    for part in (feature.words, f"exists since libfabric {feature.since}", describe()):
        assert part in str(caught.value)


def test_the_description_names_library_file_and_headers() -> None:
    for part in (str(library_version()), library_path(), str(headers_version())):
        assert part in describe()


def test_a_capability_that_is_there_passes() -> None:
    require(Caps.MSG | Caps.RMA, offer("tcp", EndpointType.MSG))


def test_a_capability_that_is_missing_names_who_has_it() -> None:
    with pytest.raises(NotSupportedError, match=r"^FI_ATOMIC: .*tcp \(FI_EP_MSG.*shm \(FI_EP_RDM\)") as caught:
        require(Caps.RMA | Caps.ATOMIC, offer("tcp", EndpointType.MSG))
    assert describe() in str(caught.value)


def test_a_capability_that_nobody_has_is_said_so() -> None:
    with pytest.raises(NotSupportedError, match="no provider on this machine has"):
        require(Caps(1 << 61), offer("tcp", EndpointType.MSG))


def test_capabilities_belong_to_an_offer() -> None:
    with pytest.raises(TypeError, match="pass info="):
        require(Caps.MSG)


def test_tagged_messages_on_connections_are_fenced_where_they_crash() -> None:
    """1.18 and later: an unexpected tagged message on FI_EP_MSG dereferences NULL (xnet_progress.c)."""
    info = offer("tcp", EndpointType.MSG)
    fenced = Quirk.TAGGED_MSG_CRASHES in quirks(info)
    assert fenced is (library_version() >= (1, 18))
    info.native.caps |= Caps.TAGGED  # as a shared receive context would have it
    if fenced:
        with pytest.raises(NotSupportedError, match="crashes when a tagged message"):
            require(Caps.TAGGED, info.duplicate())
    else:
        require(Caps.TAGGED, info.duplicate())


def test_a_connection_that_asks_for_tagged_messages_never_runs_into_the_crash() -> None:
    """Such a connection then uses FI_EP_RDM, or a provider that does not crash."""
    ended = run_in_child("""
        import anyio
        from aiofabric import Caps, Hints, connect, listen
        from aiofabric.features import Quirk, quirks

        async def main():
            hints = Hints(caps=Caps.MSG | Caps.TAGGED)
            async with listen("127.0.0.1", 0, provider="tcp", hints=hints) as listener:
                with anyio.fail_after(8):
                    async with anyio.create_task_group() as tasks:

                        async def accept():
                            async with await (await listener.accept_request()).accept() as end:
                                print((await end.recv()).decode())

                        tasks.start_soon(accept)
                        async with await connect(listener.address, provider="tcp", hints=hints) as end:
                            assert Quirk.TAGGED_MSG_CRASHES not in quirks(end.info)
                            await end.send(b"done")

        anyio.run(main)
    """)
    assert (ended.status, ended.out.strip()) == (0, "done"), ended.err


@pytest.mark.parametrize(
    ("provider", "kind", "expected"),
    [
        ("sockets", EndpointType.MSG, Quirk.NO_WAIT_FD | Quirk.SILENT_CLOSE),
        ("udp;ofi_rxd", EndpointType.RDM, Quirk.NO_WAIT_FD | Quirk.SILENT_CLOSE),
        ("tcp;ofi_rxm", EndpointType.RDM, Quirk.SILENT_CLOSE),
        ("udp", EndpointType.DGRAM, Quirk.SILENT_CLOSE),
    ],
)
def test_oddities_follow_the_layers_of_a_name(provider: str, kind: EndpointType, expected: Quirk) -> None:
    assert expected in quirks(offer(provider, kind))


def test_an_ordinary_provider_sleeps_and_flushes() -> None:
    found = quirks(offer("tcp", EndpointType.MSG))
    assert not found & (Quirk.NO_WAIT_FD | Quirk.SILENT_CLOSE)
