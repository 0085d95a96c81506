"""The page of the protocol is complete: a decoder that was written from it alone reads all recorded traffic."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest

from aiofabric.rpc.protocol.connection import Limits
from tests.rpc.protocol.page_decoder import KINDS
from tests.rpc.protocol.page_recorder import Recorder, frame, preface

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.rpc.protocol.network import MadeCall
    from tests.rpc.protocol.page_decoder import Frame, Pairs

pytestmark = pytest.mark.once

EVERY_CALL = (1 << 64) - 1


def kinds(frames: list[Frame]) -> list[str]:
    return [frame["side"][0] + ":" + frame["kind"] for frame in frames]


def only(frames: list[Frame], kind: str) -> Frame:
    """The one frame of this kind."""
    (found,) = (frame for frame in frames if frame["kind"] == kind)
    return found


def prefaces() -> list[Frame]:
    network = Recorder(Limits(window=100_000, credentials=b"secret"), Limits(max_message=1 << 33, max_calls=7))
    frames = network.new()
    client, server = frames
    assert kinds(frames) == ["c:PREFACE", "s:PREFACE"]
    assert (client["id"], client["lowest"], client["highest"], client["features"]) == (0, 1, 1, 0)
    assert (client["window"], client["credentials"]) == (100_000, b"secret")
    assert (server["max_message"], server["max_calls"], server["credentials"]) == (1 << 33, 7, b"")
    return frames


def calls_before_and_after_the_preface() -> list[Frame]:
    network = Recorder()
    pairs: Pairs = [("a", "1"), ("k-bin", b"\0\xff"), ("a", "2")]
    network.call("/s/m", tuple(pairs), deadline=network.now + 5, message=b"early")
    early = network.new()
    assert kinds(early) == ["c:PREFACE", "c:START", "s:PREFACE"]
    assert early[1] == {
        "side": "client",
        "kind": "START",
        "id": 1,
        "early": True,
        "in_full": True,
        "method": "/s/m",
        "time_limit": 5_000_000,
        "metadata": pairs,
        "message": b"early",
        "end": False,
    }
    network.call("/s/m", tuple(pairs), message=b"", end=True)
    later = network.new()
    assert [(frame["table"], frame["index"], frame["name"]) for frame in later[:-1]] == [
        (0, 0, "/s/m"),
        (1, 0, "a"),
        (1, 1, "k-bin"),
    ]
    start = later[-1]
    assert (start["early"], start["in_full"], start["method"], start["metadata"]) == (False, False, "/s/m", pairs)
    assert (start["time_limit"], start["message"], start["end"]) == (None, b"", True)
    network.call(end=True)
    (bare,) = network.new()
    assert (bare["method"], bare["metadata"], bare["message"], bare["end"]) == ("/s/m", [], None, True)
    return early + later


def names_beyond_the_table() -> list[Frame]:
    network = Recorder(server=Limits(table=40))
    frames = network.new()
    for number in range(2):
        network.call(f"/s/{number}", ((f"k{number}", "v"),))
    frames += network.new()
    starts = [frame for frame in frames if frame["kind"] == "START"]
    assert only(frames, "DEFINE")["name"] == "/s/0"
    assert [(start["method"], start["in_full"]) for start in starts] == [("/s/0", False), ("/s/1", True)]
    assert [start["metadata"] for start in starts] == [[("k0", "v")], [("k1", "v")]]
    return frames


def headers_and_statuses() -> list[Frame]:
    network = Recorder()
    _, served = network.open_call()
    served.send_headers((("h", "1"), ("h-bin", b"\0")))
    served.post(b"answer")
    served.finish(3, "näh", (("h", "2"), ("t", "")), message=b"last")
    frames = network.new()
    assert kinds(frames) == ["s:DEFINE", "s:DEFINE", "s:HEADERS", "s:MESSAGE", "s:DEFINE", "s:STATUS"]
    assert only(frames, "HEADERS")["metadata"] == [("h", "1"), ("h-bin", b"\0")]
    assert only(frames, "MESSAGE")["message"] == b"answer"
    status = frames[-1]
    assert (status["code"], status["details"], status["refused"]) == (3, "näh", False)
    assert (status["metadata"], status["message"]) == ([("h", "2"), ("t", "")], b"last")
    _, served = network.open_call()
    served.finish()
    (bare,) = network.new()
    assert (bare["code"], bare["details"], bare["metadata"], bare["message"]) == (0, "", [], None)
    _, served = network.open_call()
    served.finish(2, "a" + "é" * 5000)
    (long,) = network.new()
    assert long["details"] == "a" + "é" * 4095  # cut between two characters
    return frames


def messages_in_pieces_with_credits() -> list[Frame]:
    network = Recorder()
    made, served = network.open_call()
    frames: list[Frame] = []
    for number in range(12):
        made.post(bytes([number]) * 100_000)
        frames += network.new()
        served.consumed()
        frames += network.new()
    made.post(b"end", end=True)
    frames += network.new()
    pieces = [frame for frame in frames if frame["kind"] == "MESSAGE"]
    assert [piece["size"] for piece in pieces if piece["first"]] == [100_000] * 12
    assert not any(piece["rendezvous"] for piece in pieces)
    whole = [piece["message"] for piece in pieces if not piece["more"]]
    assert whole == [*(bytes([number]) * 100_000 for number in range(12)), b"end"]
    assert [piece["end"] for piece in pieces if not piece["more"]] == [False] * 12 + [True]
    grants = [frame for frame in frames if frame["kind"] == "CREDIT"]
    assert {grant["side"] for grant in grants} == {"server"}
    assert sum(grant["credits"] for grant in grants) > 12 * 100_000 - 524_288
    return frames


def a_message_with_rendezvous_each_way() -> list[Frame]:
    network = Recorder()
    made, served = network.open_call()
    made.post(b"x" * 1_000_000)
    frames = network.new()
    first, proceed, *pieces = frames
    assert (first["rendezvous"], first["size"]) == (True, 1_000_000)
    assert (proceed["side"], proceed["kind"], proceed["id"]) == ("server", "PROCEED", made.id)
    assert pieces[-1]["message"] == b"x" * 1_000_000
    served.finish(message=b"y" * 1_000_000)
    answer = network.new()
    assert kinds(answer)[:3] == ["s:MESSAGE", "c:PROCEED", "s:MESSAGE"]
    assert kinds(answer)[-1] == "s:STATUS"
    assert answer[-2]["message"] == b"y" * 1_000_000
    return frames + answer


def the_ends_of_calls() -> list[Frame]:
    network = Recorder(Limits(max_message=1000), Limits(max_calls=2))
    made, served = network.open_call()
    made.half_close()
    frames = network.new()
    assert kinds(frames) == ["c:END"]
    network.open_call()
    network.client.peer = Limits().preface()  # a client that does not count its calls
    network.call(message=b"x")
    refused = network.new()
    status = only(refused, "STATUS")
    assert (status["id"], status["code"], status["refused"]) == (3, 8, True)
    made.cancel(4)
    cancelled = network.new()
    assert (cancelled[0]["kind"], cancelled[0]["code"]) == ("CANCEL", 4)
    served.release()
    _, served = network.open_call()
    served.post(b"x" * 1001)
    long = network.new()
    assert kinds(long) == ["s:MESSAGE", "c:CANCEL"]
    assert long[1]["code"] == 8
    return frames + refused + cancelled


def an_early_call_has_little_window_in_the_clients_direction_only() -> list[Frame]:
    network = Recorder()
    made = network.call()
    frames = network.new()
    for _ in range(5):
        network.served[made.id].post(b"x" * 60_000)
        made.post(b"y" * 15_000)
    frames += network.new()
    sides = [frame["side"] for frame in frames if frame["kind"] == "MESSAGE"]
    assert (sides.count("server"), sides.count("client")) == (5, 4)
    return frames


def a_drained_server() -> list[Frame]:
    network = Recorder()
    made, served = network.open_call()
    network.server.drain()
    frames = network.new()
    assert [(*frame.items(),)[1:] for frame in frames] == [
        (("kind", "GOAWAY"), ("id", EVERY_CALL), ("reason", 0), ("text", "")),
        (("kind", "PING"), ("id", 0)),
        (("kind", "PONG"), ("id", 0)),
        (("kind", "GOAWAY"), ("id", made.id), ("reason", 0), ("text", "")),
    ]
    served.finish()
    assert kinds(network.new()) == ["s:STATUS"]
    assert network.client.finished
    return frames


def a_client_that_ends() -> list[Frame]:
    network = Recorder()
    network.new()
    network.client.close()
    (goaway,) = network.new()
    assert (goaway["side"], goaway["kind"], goaway["id"], goaway["reason"]) == ("client", "GOAWAY", 0, 0)
    return [goaway]


def pings() -> list[Frame]:
    network = Recorder()
    network.new()
    network.client.ping(77)
    network.server.ping(78)
    frames = network.new()
    assert sorted((frame["side"], frame["kind"], frame["id"]) for frame in frames) == [
        ("client", "PING", 77),
        ("client", "PONG", 78),
        ("server", "PING", 78),
        ("server", "PONG", 77),
    ]
    return frames


def errors() -> list[Frame]:
    frames = []
    for data, reason in (
        (frame(99), 1),
        (frame(9, 1, struct.pack("<I", 1)), 2),
        (frame(2, 0, b"x" * 20_000, field=1), 3),
    ):
        network = Recorder()
        network.open_call()
        network.server.receive(memoryview(data), network.now)
        (goaway,) = network.new()
        assert (goaway["kind"], goaway["reason"]) == ("GOAWAY", reason)
        assert goaway["text"]
        frames.append(goaway)
    network = Recorder()
    network.server.receive(memoryview(preface(b"http")), network.now)
    server = [each for each in network.new() if each["side"] == "server"]
    assert kinds(server) == ["s:PREFACE", "s:GOAWAY"]
    assert server[1]["reason"] == 4
    return frames + server


SCENES = (
    prefaces,
    calls_before_and_after_the_preface,
    names_beyond_the_table,
    headers_and_statuses,
    messages_in_pieces_with_credits,
    a_message_with_rendezvous_each_way,
    the_ends_of_calls,
    an_early_call_has_little_window_in_the_clients_direction_only,
    a_drained_server,
    a_client_that_ends,
    pings,
    errors,
)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_the_page_decodes(scene: object) -> None:
    assert callable(scene)
    assert scene()


def test_every_kind_but_those_of_remote_memory_was_seen() -> None:
    seen = {each["kind"] for scene in SCENES for each in scene()}
    assert seen == set(KINDS.values()) - {"REGION", "RELEASE"}


def test_goaway_after_an_error_has_the_last_call_that_the_server_handles() -> None:
    network = Recorder()
    made, served = network.open_call()
    assert served.events == ["started"]
    network.server.receive(memoryview(frame(99)), network.now)
    (goaway,) = network.new()
    assert goaway["id"] == made.id
    assert made.status is not None
    assert made.status.may_have_run


def steps(network: Recorder, seed: int) -> Iterator[list[Frame]]:
    """Random traffic on up to six calls."""
    dice = random.Random(seed)
    calls: list[MadeCall] = []
    for _ in range(80):
        size = dice.choice((0, 1, 64, 16384, 16385, 40_000, 70_000, 200_000))
        made = dice.choice(calls) if calls else None
        served = network.served.get(made.id) if made else None
        action = dice.randrange(8)
        if action == 0 and len(calls) < 6:
            calls.append(network.call("/s/m", (("k", "v"),), message=dice.choice((None, b"q" * size))))
        elif action in (1, 2) and made and not made.sent_end:
            made.post(b"c" * size, end=dice.random() < 0.1)
        elif action == 3 and served:
            served.post(b"s" * size)
        elif action in (4, 5) and made and served:
            (made if action == 4 else served).consumed()
        elif action == 6 and served and dice.random() < 0.3:
            served.finish(dice.choice((0, 5)), message=b"f" * size)
        elif action == 7 and made and dice.random() < 0.3:
            made.cancel()
        if dice.random() < 0.5:
            yield network.new()


@pytest.mark.parametrize("seed", range(40))
def test_random_traffic_keeps_to_the_page_and_its_credits(seed: int) -> None:
    limits = Limits(window=(65536, 262144)[seed % 2], table=(0, 60, 16384)[seed % 3], memory=1 << 20)
    network = Recorder(limits, limits)
    if seed % 4:
        network.new()
    assert sum(len(frames) for frames in steps(network, seed)) > 10
    assert network.client.failed is network.server.failed is None
