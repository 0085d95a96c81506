"""The kernel's options for a heartbeat: a lost peer is noticed within 1.5 periods, with one packet in each period."""

import socket
from functools import partial

import pytest

import aiofabric
from aiofabric.cm.workarounds.keepalive import LEAST, MOST, agree, notice_silence, unwatched
from aiofabric.cm.workarounds.provider_sockets import connected_socket
from tests.fixtures.internals import descriptor_of, handle_of, socket_of
from tests.fixtures.providers import VIRTUAL, Pair, over

provider = over(["tcp", *VIRTUAL])


@pytest.mark.parametrize("seconds", [3, 3.9, 4, 5, 5.9, 6, 7, 9, 10, 30, 60, 3600, 32767])
def test_a_period_is_one_packet_and_the_end_comes_in_time(seconds: float) -> None:
    with socket.socket() as sock:
        notice_silence(sock, seconds)
        option = partial(sock.getsockopt, socket.IPPROTO_TCP)
        idle, interval, probes = map(option, (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT))
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert seconds - 1 < idle <= seconds
        assert seconds < idle + probes * interval <= 1.5 * seconds
        assert idle + (probes - 1) * interval < option(socket.TCP_USER_TIMEOUT) / 1000 < idle + probes * interval


def test_the_shorter_period_counts() -> None:
    assert agree([None, 0.0]) is None
    assert agree([None, 7.0]) == 7.0
    assert agree([9.0, 5.0]) == 5.0
    assert agree([9.0, 0.1]) == LEAST  # a peer cannot make this side send more often
    assert agree([None, 4e6]) == MOST  # nor ask for a value that the kernel refuses


@pytest.mark.parametrize(
    ("provider", "words", "cure"),
    [
        ("tcp", "could not identify it this time", "Connect again"),
        ("net", "could not identify it this time", "Connect again"),
        ("sockets", "cannot identify the socket of a connection over sockets", "use the provider tcp"),
    ],
)
def test_a_connection_that_is_not_watched_says_what_to_do(provider: str, words: str, cure: str) -> None:
    error = unwatched(provider, "the peer")
    assert words in str(error)
    assert cure in str(error)
    assert error.peer == "the peer"


def keepalive_of(endpoint: aiofabric.MessageEndpoint) -> int:
    line = getattr(handle_of(endpoint), "oob_socket", None)  # only the kernel can report the options of a socket
    if line is not None:
        return int(socket_of(line).getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE))
    sock = connected_socket(descriptor_of(endpoint), endpoint.local_address, endpoint.peer_address)
    assert sock is not None
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE):
        return 0
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)


@pytest.mark.anyio
async def test_both_sides_watch_when_one_asks(pair: Pair) -> None:
    async with pair(accepting={"heartbeat": 9}) as ends:
        assert [keepalive_of(end) for end in ends] == [9, 9]
    async with pair(accepting={"heartbeat": 9}, heartbeat=5) as ends:
        assert [keepalive_of(end) for end in ends] == [5, 5]


@pytest.mark.anyio
@pytest.mark.parametrize("heartbeat", [0, -1, 2.9, 40000])
async def test_heartbeat_has_its_limits(provider: str, heartbeat: float) -> None:
    with pytest.raises(ValueError, match="heartbeat must be 3 to 32767 seconds"):
        await aiofabric.connect("127.0.0.1", 9, provider=provider, heartbeat=heartbeat)
