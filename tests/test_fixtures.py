"""The tools of the tests: helpers that report results of other processes, and checks that can fail."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import sniffio

from tests.fixtures.children import Child, ChildFailed, Parent, run_in_child
from tests.fixtures.libraries import libraries
from tests.fixtures.providers import Pair
from tests.fixtures.shares import LONG

ROOT = Path(__file__).parent.parent


def stumble(parent: Parent) -> None:
    raise ValueError("the reason")


def crash(parent: Parent) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def wait_for_ever(parent: Parent) -> None:
    parent.tell("waiting")
    parent.receive()


async def add(parent: Parent, first: int) -> int:
    parent.tell((os.getpid(), sniffio.current_async_library()))
    second: int = await parent.areceive()
    return first + second


@pytest.mark.anyio
async def test_child_runs_on_the_loop_of_the_test(child: Callable[..., Child]) -> None:
    peer = child(add, 3)
    assert await peer.areceive() == (peer.pid, sniffio.current_async_library())
    peer.tell(4)
    assert await peer.aresult() == 7


def test_traceback_comes_back_from_the_child(child: Callable[..., Child]) -> None:
    with pytest.raises(ChildFailed, match=r"in stumble\n(.*\n)*ValueError: the reason"):
        child(stumble).result()


def test_signal_of_a_crashed_child_is_named(child: Callable[..., Child]) -> None:
    with pytest.raises(ChildFailed, match="SIGSEGV"):
        child(crash).receive()


def test_waiting_for_a_silent_child_ends(child: Callable[..., Child]) -> None:
    peer = child(wait_for_ever)
    assert peer.receive() == "waiting"
    with pytest.raises(ChildFailed, match="nothing from process"):
        peer.receive(timeout=0.01)


def test_crash_in_a_cage_is_a_result() -> None:
    ended = run_in_child("import os; print('before', flush=True); os.abort()")
    assert (ended.signal, ended.out) == (signal.SIGABRT, "before\n")


@pytest.mark.anyio
async def test_pair_is_connected(pair: Pair) -> None:
    async with pair(recv_count=4) as (active, passive):
        await active.send(b"from the active side")
        assert await passive.recv() == b"from the active side"
        await passive.send(b"from the passive side")
        assert await active.recv() == b"from the passive side"
        assert active.recv_count == passive.recv_count == 4


def run_suite(directory: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A session of its own over one file, with this suite's fixtures."""
    (directory / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (directory / "test_it.py").write_text(source)
    return run_pytest("pytest", directory, *arguments)


def run_pytest(module: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    configured = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(directory)]
    return subprocess.run(
        [sys.executable, "-m", module, *configured, *arguments, str(directory)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


LEAKS = {
    "descriptor": "import os\ndef test_it():\n    os.dup(1)",
    "reader": """
import asyncio, os
def test_it():
    async def forget():
        r, w = os.pipe()
        asyncio.get_running_loop().add_reader(r, print)
        os.close(r), os.close(w)
    asyncio.run(forget())
""",
    "resource": """
import aiofabric
def test_it():
    global fabric
    tcp = aiofabric.Hints(fabric_attr=aiofabric.FabricAttr(prov_name="tcp"))
    fabric = aiofabric.Fabric(aiofabric.getinfo(hints=tcp)[0])
""",
}


@pytest.mark.once
@pytest.mark.long
@pytest.mark.parametrize("what", LEAKS)
def test_what_a_test_leaves_behind_fails_it(what: str, tmp_path: Path) -> None:
    ended = run_suite(tmp_path, LEAKS[what])
    assert "1 passed, 1 error" in ended.stdout, ended.stdout


@pytest.mark.once
@pytest.mark.long
def test_crash_of_the_previous_run_is_told(tmp_path: Path) -> None:
    run_suite(tmp_path, "import os\ndef test_it():\n    os.abort()")
    ended = run_suite(tmp_path, "def test_it(): pass")
    assert "a previous run crashed or was killed (main, in test_it.py::test_it)" in ended.stdout


@pytest.mark.once
@pytest.mark.long
def test_a_limit_above_the_one_that_ends_the_process_is_refused(tmp_path: Path) -> None:
    ended = run_suite(tmp_path, "import pytest\n@pytest.mark.timeout(700)\ndef test_it(): pass")
    assert "limits that faulthandler_timeout (700.0 s) would cut: ['test_it.py::test_it']" in ended.stderr, ended.stdout
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR


TURNS = """
import os, pathlib, time, pytest
others = pathlib.Path({marks!r})
mine = others / str(os.getpid())

@pytest.fixture
def inside():
    mine.touch()
    yield
    mine.unlink()

@pytest.mark.parametrize("n", range(30))
def test_together(n, inside): time.sleep(0.002)

@pytest.mark.alone
@pytest.mark.parametrize("n", range(3))
def test_alone(n, inside):
    time.sleep(0.02)
    assert list(others.iterdir()) == [mine]
"""


@pytest.mark.once
@pytest.mark.long
def test_alone_means_nobody_else_of_the_run(tmp_path: Path) -> None:
    marks, suite = tmp_path / "marks", tmp_path / "suite"
    marks.mkdir()
    suite.mkdir()
    ended = run_suite(suite, TURNS.format(marks=str(marks)), "--dist=each", "--tx=2*popen")
    assert "66 passed" in ended.stdout, ended.stdout


def run_shared(directory: Path, sources: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """``python -m tests`` over these files, without the fixtures: they would take longer than all else."""
    (directory / "conftest.py").write_text("pytest_plugins = ['tests.fixtures.once']")
    for name, source in sources.items():
        (directory / name).write_text(source)
    return run_pytest("tests", directory)


SHARED = """
import json, os, pathlib, time, pytest
log, library, process = pathlib.Path({log!r}), os.environ.get("AIOFABRIC_LIBFABRIC"), os.getpid()

@pytest.mark.parametrize("n", range({count}))
def test_it(n):
    with log.open("a") as file:
        print(json.dumps([library, os.path.basename(__file__), n, process]), file=file)
    until = time.monotonic() + 20
    while len({{p for l, _, _, p in map(json.loads, log.read_text().splitlines()) if l == library}}) == 1:
        assert time.monotonic() < until, "nobody beside this process"
        time.sleep(0.001)
"""


@pytest.mark.once
@pytest.mark.long
def test_processes_of_a_library_share_the_files(tmp_path: Path) -> None:
    log, suite = tmp_path / "log", tmp_path / "suite"
    suite.mkdir()
    counts = {f"test_{count}.py": count for count in range(1, 6)}
    ended = run_shared(suite, {name: SHARED.format(log=str(log), count=count) for name, count in counts.items()})
    ran = [json.loads(line) for line in log.read_text().splitlines()]
    assert Counter((library, name, n) for library, name, n, _ in ran) == Counter(
        (library, name, n) for library in libraries().values() for name, count in counts.items() for n in range(count)
    ), ended.stdout
    together = {(library, name): process for library, name, _, process in ran}
    assert all(together[library, name] == process for library, name, _, process in ran)
    assert f"{len(ran)} passed" in ended.stdout, ended.stdout


@pytest.mark.once
def test_files_that_come_first_are_there() -> None:
    assert [name for name in LONG if not (ROOT / name).is_file()] == []


@pytest.mark.once
@pytest.mark.long
def test_library_without_a_test_of_the_choice_spoils_nothing(tmp_path: Path) -> None:
    ended = run_shared(tmp_path, {"test_it.py": "import pytest\n@pytest.mark.once\ndef test_it(): pass"})
    assert "1 passed" in ended.stdout, ended.stdout
    assert ended.returncode == 0


@pytest.mark.once
@pytest.mark.long
def test_crash_ends_the_run_and_names_its_test(tmp_path: Path) -> None:
    ended = run_shared(tmp_path, {"test_it.py": "import os\ndef test_it(): os.abort()"})
    assert "crashed while running 'test_it.py::test_it'" in ended.stdout, ended.stdout
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
