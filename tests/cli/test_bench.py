"""bench prints a row for each loop and transport, whatever the figures are."""

import re
import signal
import time
from importlib.util import find_spec

import pytest

from tests.cli.programs import AIOFABRIC, aiofabric, on_terminal, started

LOOPS = [loop for loop in ("asyncio", "uvloop") if find_spec(loop)]
QUICK = ("bench", "-t", "0.01")


def rows(lines: list[str]) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


def test_a_row_for_each_loop_and_transport() -> None:
    said = aiofabric(*QUICK)
    assert (said.err, said.status) == ("", 0)
    table, _, rest = said.out.partition("asyncio: ")
    heading, *lines = rows(table.splitlines())
    assert heading == ["LOOP", "TRANSPORT", "64 B ROUND TRIP", "64 B ONE WAY", "1 MIB ONE WAY"]
    assert [line[:2] for line in lines] == [
        [loop, transport] for loop in LOOPS for transport in ("asyncio sockets", "aiofabric tcp")
    ]
    for line in lines:
        latency, rate, bandwidth = line[2:]
        assert re.fullmatch(r"\d+\.\d us", latency)
        assert re.fullmatch(r"\d+ k/s", rate)
        assert re.fullmatch(r"\d+\.\d\d GB/s", bandwidth)
    for ratio in f"asyncio: {rest}".splitlines()[: len(LOOPS)]:
        assert re.fullmatch(r"\w+: tcp is \d+\.\d, \d+\.\d, \d+\.\d times as fast as sockets\.", ratio)
    assert "Next: " in rest


def test_a_terminal_gets_a_bar_that_leaves_no_trace() -> None:
    text = "\n".join(on_terminal("python -m aiofabric bench -t 0.01", columns=100))
    steps = 6 * len(LOOPS)
    assert re.search(rf"\033\[K█+░+ 1/{steps} asyncio sockets on asyncio", text)
    before, _, after = text.rpartition("\033[K")
    assert f" {steps}/{steps} aiofabric tcp on {LOOPS[-1]}" in before
    assert after.startswith("\033[1mLOOP")


def test_a_provider_that_does_not_connect_is_one_sentence() -> None:
    said = aiofabric(*QUICK, "-p", "nosuch")
    assert (said.out, said.status) == ("", 2)
    assert said.err.startswith("aiofabric bench: no provider 'nosuch'; there are ")
    assert len(said.err.splitlines()) == 1


def test_ctrl_c_is_clean() -> None:
    with started(*AIOFABRIC, "bench", "-t", "60") as program:
        children = f"/proc/{program.process.pid}/task/{program.process.pid}/children"
        pids: list[str] = []
        while len(pids) < 2:  # without a pause: the signal then comes while the second one is started
            with open(children) as file:
                pids = file.read().split()
        program.process.send_signal(signal.SIGINT)
        said = program.end()
    assert (said.out, said.err, said.status) == ("", "", 130)
    while any(_runs(pid) for pid in pids):  # the test's timeout ends the wait: they were killed
        time.sleep(0.002)


def _runs(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.once
@pytest.mark.parametrize(
    ("time", "reason"),
    [
        *((time, f"more than 0 and at most 60 seconds, not {time}") for time in ("0", "-1", "61", "nan")),
        ("soon", "invalid number of seconds value"),
    ],
)
def test_an_impossible_time_is_status_2(time: str, reason: str) -> None:
    said = aiofabric("bench", "-t", time)
    assert said.status == 2
    assert reason in said.err
