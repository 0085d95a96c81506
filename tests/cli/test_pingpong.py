"""pingpong as client and as server of libfabric's own fi_pingpong."""

import shutil
import signal
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from tests.cli.programs import AIOFABRIC, Said, aiofabric, same_library, started
from tests.fixtures.ports import free_port

needs_c = pytest.mark.skipif(
    shutil.which("fi_pingpong") is None, reason="fi_pingpong is not installed (Debian: libfabric-bin)"
)
OURS = (*AIOFABRIC, "pingpong")
THEIRS = ("fi_pingpong",)

ROLES = [
    pytest.param(THEIRS, OURS, id="our-client", marks=needs_c),
    pytest.param(OURS, THEIRS, id="our-server", marks=needs_c),
    pytest.param(OURS, OURS, id="both-ours"),
]
KINDS = [("msg", "tcp"), ("rdm", "tcp"), ("rdm", "shm"), ("dgram", "udp")]
USUAL = ["64", "256", "1k", "4k", "64k", "1m"]
LONGEST = {"dgram": 3}  # a datagram fits an Ethernet frame: so many of the usual sizes do
MSG = ("-e", "msg", "-p", "tcp")


def slow(*values: object) -> Any:
    """Parameters of `make test-long`: each pair of programs takes a second."""
    return pytest.param(*values, marks=pytest.mark.long)


def match(
    server: tuple[str, ...],
    client: tuple[str, ...],
    *flags: str,
    host: str = "127.0.0.1",
    theirs: dict[str, str] | None = None,
) -> tuple[Said, Said]:
    """Run both; the server must end by itself after its one client."""
    port = str(free_port())
    environment: dict[tuple[str, ...], dict[str, str]] = {THEIRS: same_library() if theirs is None else theirs}
    with ExitStack() as stack:
        serving = stack.enter_context(started(*server, *flags, "-B", port, **environment.get(server, {})))
        serving.listens(port)
        calling = stack.enter_context(started(*client, *flags, "-P", port, host, **environment.get(client, {})))
        said = calling.end()
        return serving.end(), said


def rows(said: Said) -> list[list[str]]:
    """The table below its heading."""
    heading, *lines = said.out.splitlines()
    assert heading.split() == ["bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec"]
    return [line.split() for line in lines]


@pytest.mark.parametrize(("kind", "provider"), KINDS)
@pytest.mark.parametrize(("server", "client"), ROLES)
def test_plays_the_usual_sizes_with_its_data_checked(
    server: tuple[str, ...], client: tuple[str, ...], kind: str, provider: str
) -> None:
    for said in match(server, client, "-e", kind, "-p", provider, "-c"):
        assert (said.err, said.status) == ("", 0)
        table = rows(said)
        assert [row[0] for row in table] == USUAL[: LONGEST.get(kind)]
        assert {tuple(row[1:3]) for row in table} == {("10", "=10")}
        assert [row[3] for row in table] == ["1.2k", "5k", "20k", "80k", "1.2m", "20m"][: LONGEST.get(kind)]


@pytest.mark.long
@pytest.mark.parametrize("provider", ["tcp", "shm"])
@pytest.mark.parametrize(("server", "client"), ROLES)
def test_plays_tagged(server: tuple[str, ...], client: tuple[str, ...], provider: str) -> None:
    for said in match(server, client, "-e", "rdm", "-p", provider, "-m", "tagged", "-c"):
        assert (said.err, said.status) == ("", 0)
        assert [row[0] for row in rows(said)] == USUAL


@needs_c
@pytest.mark.long
@pytest.mark.parametrize(("kind", "provider"), [("msg", "tcp"), ("rdm", "tcp;ofi_rxm"), ("dgram", "udp")])
@pytest.mark.parametrize(("server", "client"), ROLES[:2])
def test_plays_with_the_systems_generation_of_libfabric(
    server: tuple[str, ...], client: tuple[str, ...], kind: str, provider: str
) -> None:
    if not same_library():
        pytest.skip("this run is on the system's libfabric: both sides have it in every other test")
    for said in match(server, client, "-e", kind, "-p", provider, "-c", theirs={}):
        assert (said.err, said.status) == ("", 0)
        assert [row[2] for row in rows(said)] == ["=10"] * len(USUAL[: LONGEST.get(kind)])


@pytest.mark.long
@pytest.mark.parametrize(("server", "client"), ROLES)
def test_plays_every_size_from_nothing_on(server: tuple[str, ...], client: tuple[str, ...]) -> None:
    for said in match(server, client, *MSG, "-c", "-S", "all", "-I", "3"):
        assert said.status == 0, said.err
        sizes = [row[0] for row in rows(said)]
        assert sizes[:6] == ["0", "1", "2", "3", "4", "6"]
        assert sizes[-2:] == ["4m", "6m"]


@pytest.mark.parametrize(("server", "client"), ROLES)
def test_plays_one_size_over_ipv6(server: tuple[str, ...], client: tuple[str, ...]) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 on this machine")
    for said in match(server, client, "-6", *MSG, "-S", "1500", "-I", "100", host="::1"):
        assert said.status == 0, said.err
        (row,) = rows(said)
        assert row[:3] == ["1.4k", "100", "=100"]


@pytest.mark.parametrize("server", [pytest.param(THEIRS, id="theirs", marks=needs_c), pytest.param(OURS, id="ours")])
def test_wrong_data_is_noticed(server: tuple[str, ...]) -> None:
    port = str(free_port())
    with started(*server, *MSG, "-B", port, **same_library()) as serving:
        serving.listens(port)
        said = aiofabric("pingpong", *MSG, "-c", "-P", port, "127.0.0.1")
    assert said.status == 1
    assert said.err == (
        "aiofabric pingpong: message 1 of 64 bytes has unexpected contents: byte 0 is b'\\x00' instead of b'0'\n"
    )


def test_different_sizes_are_noticed() -> None:
    port = str(free_port())
    with started(*OURS, *MSG, "-S", "64", "-B", port) as serving:
        serving.listens(port)
        aiofabric("pingpong", *MSG, "-S", "32", "-P", port, "127.0.0.1")
        said = serving.end()
    assert said.status == 1
    assert "does it have the same -e, -I and -S?" in said.err  # reported by this side, or first by the other one


@pytest.mark.parametrize(("kind", "provider"), KINDS)
def test_a_killed_client_ends_the_server(kind: str, provider: str) -> None:
    port = str(free_port())
    flags = ("-e", kind, "-p", provider, "-I", "10000000", "-S", "64")
    with started(*OURS, *flags, "-B", port) as serving:
        serving.listens(port)
        with started(*OURS, *flags, "-P", port, "127.0.0.1") as calling:
            assert calling.process.stdout is not None
            calling.process.stdout.readline()  # the heading: the measurement has begun
        said = serving.end()
    assert said.status == 1
    assert len(said.err.splitlines()) == 1


def test_ctrl_c_is_clean() -> None:
    port = str(free_port())
    with started(*OURS, *MSG, "-B", port) as serving:
        serving.listens(port)
        serving.process.send_signal(signal.SIGINT)
        said = serving.end()
    assert (said.out, said.err, said.status) == ("", "", 130)


def test_nobody_there_is_one_sentence() -> None:
    port = str(free_port())
    said = aiofabric("pingpong", "-P", port, "127.0.0.1")
    assert (said.out, said.status) == ("", 1)
    assert said.err == f"aiofabric pingpong: no server at 127.0.0.1, port {port}: Connection refused\n"


def test_a_taken_port_is_one_sentence() -> None:
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = aiofabric("pingpong", "-B", port)
    assert (said.out, said.status) == ("", 1)
    assert said.err == f"aiofabric pingpong: cannot listen at port {port}: Address already in use; -B chooses another\n"


def test_a_client_on_the_control_port_is_one_sentence() -> None:
    port = str(free_port())
    with started(*OURS, *MSG, "-B", port) as serving:
        serving.listens(port)
        with socket.create_connection(("127.0.0.1", int(port))) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            said = serving.end()
    assert said.status == 1
    assert said.err.startswith("aiofabric pingpong: ")
    assert len(said.err.splitlines()) == 1


@pytest.mark.once
@pytest.mark.parametrize("flags", [("-I", "x"), ("-S", "some"), ("-B", "65536"), ("-e", "stream"), ("-m", "loud")])
def test_wrong_flags_are_status_2(flags: tuple[str, ...]) -> None:
    said = aiofabric("pingpong", *flags)
    assert said.status == 2
    assert f"argument {flags[0]}" in said.err


@pytest.mark.parametrize(("kind", "provider"), [("msg", "tcp"), ("rdm", "shm")])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (["-I", "10", "-S", "64"], ["-I", "30", "-S", "64"]),
        slow(["-I", "30", "-S", "64"], ["-I", "10", "-S", "64"]),
        slow(["-I", "10"], ["-I", "30"]),
        (["-I", "30"], ["-I", "10"]),
        (["-S", "64"], ["-S", "1000"]),
        slow(["-S", "1000"], ["-S", "64"]),
        slow(["-S", "64"], []),
        slow([], ["-S", "64"]),
    ],
    ids=lambda flags: " ".join(flags) or "usual",
)
def test_sides_with_different_flags_end_with_a_sentence(
    kind: str, provider: str, ours: list[str], theirs: list[str]
) -> None:
    """Before, they waited for each other for ever, or until a timeout."""
    port = str(free_port())
    both = ("-e", kind, "-p", provider)
    with started(*OURS, *both, *ours, "-B", port) as serving:
        serving.listens(port)
        calling = aiofabric("pingpong", *both, *theirs, "-P", port, "127.0.0.1")
        serving_said = serving.end()
    if kind == "msg" and not (ours and theirs):  # one side announces its limit, the other sends messages within it
        assert (calling.status, serving_said.status) == (0, 0)
        return
    for said in (calling, serving_said):
        (line,) = said.err.splitlines()
        assert line.startswith("aiofabric pingpong: ")
        assert said.status == 1
    assert "same -e, -I and -S" in calling.err + serving_said.err


@pytest.mark.long
@pytest.mark.parametrize("server", [OURS, pytest.param(THEIRS, marks=needs_c)], ids=["both-ours", "our-client"])
@pytest.mark.parametrize(("kind", "other"), [("msg", "rdm"), ("rdm", "msg")])
def test_sides_with_different_types_end_with_a_sentence(server: tuple[str, ...], kind: str, other: str) -> None:
    """A server without its connection waited for it, and its client for the server."""
    port = str(free_port())
    with started(*server, "-e", kind, "-p", "tcp", "-B", port) as serving:
        serving.listens(port)
        calling = aiofabric("pingpong", "-e", other, "-p", "tcp", "-P", port, "127.0.0.1")
        (line,) = calling.err.splitlines()
        assert line.startswith("aiofabric pingpong: ")
        assert calling.status in (1, 2)  # 2: the address of the server has no endpoints of the other type
        if server is OURS and calling.status == 1:
            (line,) = serving.end().err.splitlines()
            assert line.startswith("aiofabric pingpong: ")


@pytest.mark.once
@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["silent", "http"])
def test_a_port_where_no_pingpong_listens_is_one_sentence(words: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        with started(*OURS, *MSG, "-P", port, "127.0.0.1") as calling:
            client, _ = other.accept()
            with client:
                client.sendall(words)
                said = calling.end()
    assert (said.out, said.status) == ("", 1)
    assert said.err.startswith("aiofabric pingpong: the other side ")
    assert said.err.endswith("check that it runs pingpong\n")


@pytest.mark.once
def test_nothing_to_measure_is_wrong_usage() -> None:
    said = aiofabric("pingpong", "-I", "0")
    assert said.status == 2
    assert "argument -I: there is nothing to measure with 0 iterations" in said.err


@pytest.mark.once
@pytest.mark.parametrize("server", [[], ["127.0.0.1"]], ids=["server", "client"])
def test_what_no_provider_has_is_said_before_the_other_side_connects(server: list[str]) -> None:
    said = aiofabric("pingpong", "-p", "nosuch", *server)
    assert said.status == 2
    assert said.err.startswith("aiofabric pingpong: no provider 'nosuch'; there are ")
    said = aiofabric("pingpong", "-p", "udp", "-e", "msg", *server)
    assert said.status == 2
    assert said.err.startswith("aiofabric pingpong: no provider has all of -p udp -e msg")


@pytest.mark.once
def test_a_server_says_where_it_listens() -> None:
    port = str(free_port())
    with started(*OURS, *MSG, "-B", port) as serving:
        assert serving.process.stderr is not None
        assert serving.process.stderr.readline() == f"listening at 0.0.0.0, port {port}\n"
