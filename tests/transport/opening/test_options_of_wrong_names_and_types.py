"""An option that does not exist, or has a wrong type, is refused with the name of the function that was called."""

from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any

import anyio
import pytest

import aiofabric
from aiofabric import ConnectionRequest, EndpointOptions, EndpointType
from aiofabric.transport.opening.keywords import EndpointKeywords
from tests.fixtures.providers import CARRIERS, over

provider = over(CARRIERS)
pytestmark = pytest.mark.anyio

HERE = "127.0.0.1"
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"recv_sise": 1}, TypeError, r"{}\(\) got an unexpected option 'recv_sise'\. Did you mean recv_size\?"),
    ({"colour": 1}, TypeError, r"{}\(\) got an unexpected option 'colour'\. Its options are recv_size, recv_count, "),
    ({"timeout": 5}, TypeError, r"{}\(\) got an unexpected option 'timeout'\. Set time limits with asyncio"),
    ({"recv_size": "64k"}, TypeError, r"{}\(\): recv_size must be a number of bytes, or None .*, not '64k'"),
    ({"recv_size": 64.0}, TypeError, r"{}\(\): recv_size must be a number of bytes"),
    ({"recv_size": 0}, ValueError, r"{}\(\): recv_size must be at least 1 byte"),
    ({"recv_count": None}, TypeError, r"{}\(\): recv_count must be a number of receives, not None"),
    ({"recv_count": 0}, ValueError, r"{}\(\): recv_count must be at least 1"),
    ({"recv_count": True}, TypeError, r"{}\(\): recv_count must be a number of receives, not True"),
    ({"multi_recv": "1M"}, TypeError, r"{}\(\): multi_recv must be a number of bytes, or None, not '1M'"),
    ({"cancel_grace": "1"}, TypeError, r"{}\(\): cancel_grace must be a number of seconds, not '1'"),
    ({"cancel_grace": float("nan")}, ValueError, r"{}\(\): cancel_grace, close_timeout .* must not be negative"),
    ({"busy_poll": None}, TypeError, r"{}\(\): busy_poll must be a number of microseconds"),
    ({"heartbeat": "5s"}, TypeError, r"{}\(\): heartbeat must be a number of seconds, or None, not '5s'"),
    ({"waiting": "poll"}, TypeError, r"{}\(\): waiting must be one of .*, not 'poll'"),
    ({"counters": [1]}, TypeError, r"{}\(\): counters must be a mapping"),
    ({"shared_receive": 1}, TypeError, r"{}\(\): shared_receive must be a SharedReceive"),
    ({"prepare": 1}, TypeError, r"{}\(\): prepare must be a function"),
    ({"prepare": anyio.sleep}, TypeError, r"{}\(\): prepare must be a plain function; no task would await"),
]
MORE: list[tuple[dict[str, Any], str]] = [
    ({"provider": 5}, "provider must be a provider's name, such as 'tcp', or None, not 5"),
    ({"domain": "lo"}, "domain must be a Domain or None, not 'lo'"),
    ({"hints": {"caps": 1}}, "hints must be a Hints or None"),
]


async def open_endpoint(*where: Any, **options: Any) -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, **options):
        pass


async def open_scalable_endpoint(*where: Any, **options: Any) -> None:
    async with aiofabric.open_scalable_endpoint(**options):
        pass


async def listen(*where: Any, **options: Any) -> None:
    async with aiofabric.listen(HERE, 0, **options):
        pass


FUNCTIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "connect": aiofabric.connect,
    "listen": listen,
    "open_endpoint": open_endpoint,
    "open_scalable_endpoint": open_scalable_endpoint,
}


@pytest.mark.parametrize("name", FUNCTIONS)
async def test_refusal_names_the_function(provider: str, name: str) -> None:
    for options, kind, words in WRONG:
        with anyio.fail_after(5), pytest.raises(kind, match="^" + words.format(name)):
            await FUNCTIONS[name](HERE, 9, provider=provider, **options)
    for more, words in MORE:
        with pytest.raises(TypeError, match=words):
            await FUNCTIONS[name](HERE, 9, **{"provider": provider, **more})


async def test_accept_names_itself_and_refuses_the_peer(provider: str) -> None:
    async with aiofabric.listen(HERE, 0, provider=provider) as listener, anyio.create_task_group() as tasks:

        async def connect() -> None:
            with pytest.raises(aiofabric.FabricConnectionError):
                await aiofabric.connect(listener.address, provider=provider)

        for options, kind, words in WRONG[:5]:
            tasks.start_soon(connect)
            request: ConnectionRequest = await listener.accept_request()
            with pytest.raises(kind, match="^" + words.format("accept")):
                await request.accept(**options)


@pytest.mark.parametrize(("option", "value"), [("backlog", "many"), ("backlog", True), ("reservation", "127.0.0.1")])
async def test_options_of_the_listener_itself(provider: str, option: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"^{option} must be a .*, not {value!r}"):
        await listen(provider=provider, **{option: value})


@pytest.mark.once
def test_keywords_are_the_options() -> None:
    """Type checkers read EndpointKeywords; what is checked at run time are the fields of EndpointOptions."""
    assert {name: str(kind) for name, kind in EndpointKeywords.__annotations__.items()} == {
        each.name: f"ForwardRef({each.type!r}, module='aiofabric.transport.opening.keywords')"
        for each in fields(EndpointOptions)
    }


async def test_an_endpoint_type_of_a_wrong_type_is_named() -> None:
    with pytest.raises(TypeError, match=r"open_endpoint\(\) takes the type first, .*, not '127.0.0.1'"):
        async with aiofabric.open_endpoint("127.0.0.1"):  # type: ignore[call-overload]
            pass


@pytest.mark.parametrize(
    ("attributes", "error", "words"),
    [
        ({"ep_attr": aiofabric.EpAttr(type="rdm")}, TypeError, "EpAttr.type takes EndpointType, not 'rdm'"),  # type: ignore[arg-type]
        ({"tx_attr": aiofabric.TxAttr(size=-1)}, ValueError, "TxAttr.size=-1 does not fit struct fi_tx_attr"),
        ({"tx_attr": aiofabric.TxAttr(size="8")}, TypeError, "TxAttr.size takes int, not '8'"),  # type: ignore[arg-type]
    ],
)
def test_an_attribute_of_a_wrong_type_is_named(attributes: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        aiofabric.getinfo(hints=aiofabric.Hints(**attributes))


@pytest.mark.parametrize("kind", [EndpointType.MSG, EndpointType.UNSPEC])
async def test_an_endpoint_with_one_peer_is_connected(kind: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{kind} endpoints have one peer: use connect\(\) and listen\(\)"):
        async with aiofabric.open_endpoint(kind, HERE, provider="tcp"):
            pass


async def test_remote_writes_are_not_reported_to_a_shared_receive() -> None:
    info = aiofabric.getinfo(hints=aiofabric.Hints(fabric_attr=aiofabric.FabricAttr(prov_name="sockets")))[0]
    with aiofabric.Domain(info) as domain, aiofabric.SharedReceive(domain) as shared:
        with pytest.raises(ValueError, match="remote_writes= and shared_receive= exclude each other"):
            EndpointOptions(remote_writes=1, shared_receive=shared)
        assert EndpointOptions(shared_receive=shared).shared_receive is shared


async def test_a_sink_is_no_async_function() -> None:
    async def swallow(_: object) -> None: ...

    async with aiofabric.open_endpoint(EndpointType.RDM, HERE, provider="udp;ofi_rxd") as endpoint:
        with pytest.raises(TypeError, match=r"set_sink\(\) takes plain functions"):
            endpoint.set_sink(swallow)


async def test_a_callback_is_a_function() -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, HERE, provider="udp;ofi_rxd") as endpoint:
        with pytest.raises(TypeError, match="on_message must be a function of one argument, or None, not 3"):
            endpoint.set_sink(3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="on_end must be a function"):
            endpoint.set_sink(print, 3)  # type: ignore[arg-type]
        peer = await endpoint.add_peer(endpoint.local_address)
        with pytest.raises(TypeError, match="done must be a function of one argument, the error or None, not 3"):
            endpoint.send_nowait(b"not sent", 3, to=peer)  # type: ignore[arg-type]
        await endpoint.send(b"sent", to=peer)
        assert await endpoint.recv() == b"sent"


async def test_a_peer_s_address_is_no_tuple() -> None:
    async with aiofabric.open_endpoint(EndpointType.RDM, HERE, provider="udp;ofi_rxd") as endpoint:
        with pytest.raises(TypeError, match=r"\('127.0.0.1', 5\) is not an address: pass an Address"):
            await endpoint.add_peer(("127.0.0.1", 5))  # type: ignore[arg-type]


def test_an_info_stays_with_its_provider() -> None:
    """Opened under another name, 2.x reads the structures of one provider as those of the other, and crashes."""
    info = aiofabric.getinfo(hints=aiofabric.Hints(fabric_attr=aiofabric.FabricAttr(prov_name="tcp")))[0]
    with pytest.raises(ValueError, match=r"an offer of tcp.*, which cannot become one of verbs"):
        info.replace(fabric_attr={"prov_name": "verbs"})
