"""Every example runs as a user would run it, and the demo notices a byte that differs."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL = [path for path in sorted(EXAMPLES.glob("*.py")) if path.name != "demo.py"]
TIMEOUT = 30

SAYS = {
    "message_echo.py": ["Ada says one", "Grace says three"],
    "anyio_timeout.py": ["no answer within 0.1 s", "the answer to everything", "in time"],
    "byte_stream.py": ["10,000,000 bytes", "same digest: True"],
    "rpc_service.py": [
        "0.01 squared is 0.0001",
        "60: DEADLINE",
        "gives up 60",
        "[0, 1, 2, 3, 4]",
        "0.3 squared is 0.09",
    ],
    "pipeline.py": ["jobs of the killed worker were done by the others", "3000 of 3000 jobs are done"],
    "thumbnails.py": ["flowchart LR", "40 thumbnails in", "1 image skipped"],
    "arrow_pipeline.py": ["300,000 rows in 3 files", "150,000 rows were written, the lowest price is 50.0"],
    "grpc_over_fabric.py": ["hello, fabric", "g-R-P-C"],
    "http_over_fabric.py": ["200 hello, request 0", "200 hello, request 9", "1 connection"],
    "tagged_fan_out.py": ["sum of the squares: 204", "worker 0 did 3 jobs", "worker 2 did 3 jobs"],
    "rma_numpy.py": ["row 3: [12. 13. 14. 15.]", "row 3: [120. 130. 140. 150.]"],
}


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *command],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_example_runs(path: Path) -> None:
    ended = run(path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    for words in SAYS[path.name]:
        assert words in ended.stdout


TRIO = """
import runpy, sys
import anyio
anyio.run.__kwdefaults__["backend"] = "trio"
runpy.run_path(sys.argv[1], run_name="__main__")
"""
ON_ANYIO = [path for path in SMALL if "anyio.run" in path.read_text()]


@pytest.mark.once
@pytest.mark.long
@pytest.mark.parametrize("path", ON_ANYIO, ids=lambda path: path.name)
def test_example_runs_on_trio(path: Path) -> None:
    ended = run("-c", TRIO, path)
    assert (ended.returncode, ended.stderr) == (0, "")
    for words in SAYS[path.name]:
        assert words in ended.stdout


@pytest.mark.once
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_that_cannot_start_ends_and_says_why(path: Path) -> None:
    ended = run(path, FI_PROVIDER="none-of-these")
    assert ended.returncode == 1
    assert "FI_PROVIDER=none-of-these restricts the providers of this process" in ended.stderr


@pytest.mark.once
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_ends_with_ctrl_c(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as example:
        assert example.stdout is not None
        example.stdout.readline()
        os.killpg(example.pid, signal.SIGINT)  # as a terminal does: to all of its processes
        try:
            _, stderr = example.communicate(timeout=TIMEOUT)  # until all of them have let go of the pipes
        finally:
            with suppress(ProcessLookupError):
                os.killpg(example.pid, signal.SIGKILL)
    assert example.returncode in (0, 130, -signal.SIGINT), stderr  # 0: it was at its end
    assert stderr == "" or "KeyboardInterrupt" in stderr


@pytest.mark.once
@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Not a multiple of any piece the demo moves."""
    path = tmp_path / "a file.bin"
    path.write_bytes(os.urandom(3_000_001))
    return path


def test_demo_moves_a_file_between_two_processes(file: Path) -> None:
    ended = run(EXAMPLES / "demo.py", file)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    pids = set(re.findall(r"^(?:server|client): pid (\d+)", ended.stdout, re.MULTILINE))
    assert len(pids) == 2
    for words in (
        "3,000,001 bytes",
        "messages",
        "remote read",
        "remote write",
        "MB/s",
        "median",
        "Every byte",
    ):
        assert words in ended.stdout


def test_demo_moves_a_single_byte(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1")
    assert run(EXAMPLES / "demo.py", tmp_path / "one").returncode == 0


# One byte changes on its way. The demo is unchanged; the transfer below it is wrong.
LIE = """
import runpy, sys
import aiofabric

async def lie(self, local, remote, *, honest=aiofabric.MessageEndpoint.{verb}):
    {body}

aiofabric.MessageEndpoint.{verb} = lie
sys.argv = sys.argv[1:]
sys.path.insert(0, {examples!r})
import demo
demo.main()
"""
LIES = {
    "read_into": "count = await honest(self, local, remote); local[-1] ^= 1; return count",
    "write": "changed = bytearray(local); changed[-1] ^= 1; return await honest(self, changed, remote)",
}


@pytest.mark.parametrize("verb", LIES)
def test_demo_fails_when_one_byte_differs(verb: str, file: Path) -> None:
    source = LIE.format(verb=verb, body=LIES[verb], examples=str(EXAMPLES))
    ended = run("-c", source, EXAMPLES / "demo.py", file)
    assert ended.returncode != 0
    assert "differs" in ended.stderr


def test_demo_ends_when_its_server_is_killed(file: Path) -> None:
    with subprocess.Popen(
        [sys.executable, EXAMPLES / "demo.py", file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        server = re.match(r"server: pid (\d+)", demo.stdout.readline())
        assert server is not None
        os.kill(int(server[1]), signal.SIGKILL)
        _, stderr = demo.communicate(timeout=TIMEOUT)
    assert demo.returncode == 1
    assert re.fullmatch("demo: .*\n", stderr)


@pytest.mark.parametrize("name", ["absent", "empty", "."])
def test_demo_refuses_what_it_cannot_move(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    ended = run(EXAMPLES / "demo.py", tmp_path / name)
    assert ended.returncode == 2
    assert "not a file with something in it" in ended.stderr
