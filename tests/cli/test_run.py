"""``aiofabric run`` runs a pipeline of the working directory; Ctrl-C ends it in order, a second one at once."""

import json
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.cli.programs import AIOFABRIC, aiofabric, on_terminal, started

PIPELINE = """
import time
from pathlib import Path
from aiofabric.pipeline import Pipeline

def without_end():
    number = 0
    while True:
        Path("begun").touch()
        yield number
        number += 1
        time.sleep(0.001)

def double(number):
    return 2 * number

def stuck(number):
    Path("begun").touch()
    time.sleep(600)

def write(number):
    with open("written", "a") as file:
        file.write(f"{number}\\n")

def busy():
    Path("blocked").touch()
    while True:
        pass

def sleeping():
    yield 1
    Path("blocked").touch()
    time.sleep(600)

def blocks(number):
    if Path("working").exists():
        Path("blocked").touch()
        time.sleep(600)

def stuck_for_long(number):
    Path("working").touch()
    time.sleep(600)

loop_is_busy = Pipeline(busy).sink(write)
loop_sleeps = Pipeline(sleeping).sink(write)
both_block = Pipeline(without_end).map(stuck_for_long, process=True).merge(Pipeline(without_end).filter(blocks))
short = Pipeline(range(100)).map(double, workers=2).sink(write)
endless = Pipeline(without_end).map(double).sink(write)
blocked = Pipeline(range(100)).map(stuck, process=True, name="stuck")
def divide(number):
    return inverse_of(number)

def inverse_of(number):
    return 1 / number

failing = Pipeline(range(3)).map(divide)
unsendable = Pipeline(range(3)).map(lambda _: lambda: 5, name="gives").sink(write, process=True)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work.py").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "arguments", [[], ["--processes", "-p", "tcp", "--workers", "double=1"]], ids=["here", "processes"]
)
def test_a_pipeline_runs_and_its_totals_are_printed(arguments: list[str], here: Path) -> None:
    said = aiofabric("run", "work:short", *arguments)
    assert (said.status, said.err) == (0, "")
    assert [int(number) for number in (here / "written").read_text().split()] == list(range(0, 200, 2))
    assert re.search(r"^double +100 +100 ", said.out, re.MULTILINE)
    assert re.search(r"^write +100 +0 ", said.out, re.MULTILINE)


def wait_for(path: Path, program: object) -> None:
    while not path.exists():
        assert program.process.poll() is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(number: signal.Signals, here: Path) -> None:
    with started(*AIOFABRIC, "run", "work:endless") as program:
        wait_for(here / "written", program)
        program.process.send_signal(number)
        said = program.end()
    written = (here / "written").read_text().split()
    assert [int(each) for each in written] == list(range(0, 2 * len(written), 2))
    assert re.search(rf"^without_end +{len(written):,} +{len(written):,} ", said.out, re.MULTILINE)
    assert (said.status, "the sources stop" in said.err) == (130, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_while_they_start_ends_it_in_order(number: signal.Signals, here: Path) -> None:
    """A terminal sends SIGINT so, a service manager SIGTERM. A worker that had not begun ended, and the run failed."""
    with started(*AIOFABRIC, "run", "work:endless", "--processes") as program:
        while not (workers := workers_of(program.process.pid)):
            assert program.process.poll() is None
        program.process.send_signal(number)
        for each in workers:
            each.send_signal(number)
        said = program.end()
    assert (said.status, "Traceback" in said.err, "StageError" in said.err) == (130, False, False), said.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_ends_it_in_order(number: signal.Signals, here: Path) -> None:
    with started(*AIOFABRIC, "run", "work:endless", "--processes", "-p", "tcp") as program:
        wait_for(here / "written", program)
        for each in workers_of(program.process.pid):
            each.send_signal(number)
        program.process.send_signal(number)
        said = program.end()
    written = (here / "written").read_text().split()
    assert [int(each) for each in written] == list(range(0, 2 * len(written), 2))
    assert re.search(rf"^without_end +{len(written):,} +{len(written):,} +[\d,]+ +0 +0 +0 ", said.out, re.MULTILINE)
    assert (said.status, "Error" in said.err) == (130, False), said.err


def workers_of(process: int) -> list[psutil.Process]:
    return [each for each in psutil.Process(process).children() if is_worker(each)]


@pytest.mark.once
@pytest.mark.parametrize("command", ["run", "serve"])
@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ("\n1 / 0\n", "odd", r"odd cannot be imported: ZeroDivisionError: division by zero \(.*odd\.py, line 2\)$"),
        (
            "import odd.er\n",
            "odd",
            r"odd cannot be imported: ModuleNotFoundError: .*'odd\.er'; .* \(.*odd\.py, line 1\)$",
        ),
        ("import missing\n", "odd", r"odd cannot be imported: .* No module named 'missing' \(.*odd\.py, line 1\)$"),
        ("None.x\n", "odd", r"odd cannot be imported: AttributeError: .* \(.*odd\.py, line 1\)$"),
        ("", "odd", "no 'thing' in 'odd'$"),
        ("", "absent", "No module named 'absent'$"),
        ("", "absent.too", "No module named 'absent'$"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_the_line(
    command: str, text: str, name: str, says: str, here: Path
) -> None:
    (here / "odd.py").write_text(text)
    said = aiofabric(command, f"{name}:thing")
    assert said.status == 1
    assert re.search(says, said.err.strip()), said.err


def is_worker(process: psutil.Process) -> bool:
    return "spawn_main" in " ".join(process.cmdline())


def test_a_second_signal_ends_it_at_once_and_says_what_is_left(here: Path) -> None:
    with started(*AIOFABRIC, "run", "work:blocked") as program:
        wait_for(here / "begun", program)
        program.process.send_signal(signal.SIGINT)
        assert program.process.stderr is not None
        assert "the sources stop" in program.process.stderr.readline()
        program.process.send_signal(signal.SIGINT)
        said = program.end()
    assert said.status == 130
    assert re.search(
        r"^not finished: about \d+ that waited between stages, and those in a function$", said.err, re.MULTILINE
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("pipeline", ["loop_is_busy", "loop_sleeps", "both_block"])
def test_a_second_signal_ends_it_while_a_function_blocks_the_loop(
    pipeline: str, number: signal.Signals, here: Path
) -> None:
    with started(*AIOFABRIC, "run", f"work:{pipeline}") as program:
        wait_for(here / "blocked", program)
        program.process.send_signal(number)
        assert program.process.stderr is not None
        assert "the sources stop" in program.process.stderr.readline()
        program.process.send_signal(number)
        said = program.end()  # also the end of its worker, which has the same output
    assert (said.status, said.out, said.err) == (130, "", "")


HANDLERS = """
import signal
from aiofabric.cli import main

ours = {number: lambda *_: None for number in (signal.SIGINT, signal.SIGTERM)}
for number, handler in ours.items():
    signal.signal(number, handler)
assert main(["run", "work:short"]) == 0
assert all(signal.getsignal(number) is handler for number, handler in ours.items())
"""


def test_a_run_puts_the_signal_handlers_of_the_program_back(here: Path) -> None:
    (here / "handlers.py").write_text(HANDLERS)
    with started(AIOFABRIC[0], "handlers.py") as program:
        said = program.end()
    assert (said.status, said.err) == (0, "")


@pytest.mark.once
@pytest.mark.parametrize("arguments", [[], ["--processes"]], ids=["here", "processes"])
def test_a_stage_that_fails_is_a_sentence_below_the_traceback_of_its_function(arguments: list[str]) -> None:
    said = aiofabric("run", "work:failing", *arguments)
    assert (said.status, said.out) == (1, "")
    *traceback, sentence = said.err.splitlines()
    assert "the stage 'divide' has failed: ZeroDivisionError" in sentence
    frames = [line.rpartition(" in ")[2] for line in traceback if line.startswith("  File ")]
    assert frames == ["divide", "inverse_of"]
    assert f'work.py", line {PIPELINE.split("    return 1 / number")[0].count(chr(10)) + 1}, in inverse_of' in said.err


def test_a_failure_that_no_function_has_raised_is_a_sentence() -> None:
    said = aiofabric("run", "work:unsendable")
    assert "the stage 'gives' has failed: PicklingError" in said.err
    assert (said.status, said.err.count("\n")) == (1, 1)


@pytest.mark.once
def test_a_pipeline_is_drawn() -> None:
    assert aiofabric("run", "work:short", "--draw", "mermaid").out.startswith("flowchart LR\n")
    assert aiofabric("run", "work:short", "--draw", "svg", "--processes").out.startswith("<svg ")


WRONG = [
    (["work"], 2, "not of the form module:pipeline"),
    (["work:nowhere"], 1, "no 'nowhere' in 'work'"),
    (["work:double"], 1, "is of type function, not an aiofabric.pipeline.Pipeline"),
    (["work:short", "--workers", "double"], 2, "not of the form STAGE=N"),
    (["work:short", "--workers", "other=2"], 2, "no stage has the name 'other'"),
    (["work:short", "--workers", "double=0"], 2, "workers must be 1 to"),
]


@pytest.mark.once
@pytest.mark.parametrize(("arguments", "status", "text"), WRONG, ids=range(len(WRONG)))
def test_wrong_usage_is_a_sentence(arguments: list[str], status: int, text: str) -> None:
    said = aiofabric("run", *arguments)
    assert (said.status, said.out) == (status, "")
    assert text in said.err
    assert said.err.count("\n") == 1


TOP = """
import anyio
from aiofabric.pipeline import Publish, Pull, Push, Subscribe

class Mine(Subscribe):
    pass

async def main():
    async with (
        Push(listen="127.0.0.1:0") as push,
        Pull(push.address, listen="127.0.0.1:0") as pull,
        Publish(listen="127.0.0.1:0") as publish,
        Mine(publish.address, [f"{number:03}" * 300 for number in range(60)] + [""], listen="127.0.0.1:0") as subscribe,
    ):
        await publish.wait_for_subscribers()
        await push.push(b"item")
        await push.push(b"item")
        await publish.publish("topic", b"data")
        with await pull.pull():
            pass
        print(*(end.address.port for end in (push, pull, publish, subscribe)), flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def plain(line: str) -> str:
    """Without the weight of letters."""
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def test_top_shows_each_end(here: Path) -> None:
    (here / "ends.py").write_text(TOP)
    with started(AIOFABRIC[0], "ends.py") as program:
        assert program.process.stdout is not None
        addresses = [f"127.0.0.1:{port}" for port in program.process.stdout.readline().split()]
        said = aiofabric("top", *addresses)
        as_json = aiofabric("top", "--json", "--once", *addresses)
        screen = on_terminal(f"python -m aiofabric top --once {' '.join(addresses)}")
        full = started("sh", "-c", f"{AIOFABRIC[0]} -m aiofabric top --json {addresses[0]} > /dev/full")
        with full as unwritten:
            no_room = unwritten.end()
    assert max(map(len, map(plain, screen))) <= 80
    assert [line.split()[0] for line in map(plain, screen)] == ["END", "Push", "Pull", "Publish", "Subscribe"]
    assert [line.split()[-1] for line in map(plain, screen)] == ["ADDRESS", *addresses]
    assert no_room.status == 1
    assert no_room.err == "aiofabric top: cannot write the output: No space left on device\n"
    rows = [line.split() for line in said.out.splitlines()[1:]]
    assert [(row[0], row[1], row[2]) for row in rows] == [
        ("Push", "1", "2"),
        ("Pull", "1", "2"),
        ("Publish", "1", "1"),
        ("Subscribe", "1", "1"),
    ]
    reports = {report["address"]: report for report in map(json.loads, as_json.out.splitlines())}
    assert [reports[address]["end"] for address in addresses] == ["Push", "Pull", "Publish", "Subscribe"]
    assert reports[addresses[0]]["acknowledged"] == 1


@pytest.mark.once
def test_top_of_an_address_without_a_listener_says_so() -> None:
    said = aiofabric("top", "127.0.0.1:9", "-p", "tcp")
    assert (said.status, said.out) == (1, "")
    assert said.err.startswith("127.0.0.1:9: ")
    assert "refused" in said.err
    assert said.err.count("\n") == 1


@pytest.mark.once
@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_wrong_usage(address: str) -> None:
    said = aiofabric("top", address)
    assert (said.status, said.out) == (2, "")
    assert said.err.count(address) == 1
    assert said.err.count("\n") == 1
