"""Runs a page of the documentation as its reader would.

A page has these parts, which are used as follows:

* a ``python`` block runs in the page's own session, after the blocks before it; it may await, as in
  ``python -m asyncio``;
* a code block with a caption or title that ends in ``.py`` or ``.proto`` is a file of that name;
* so is the file of a ``literalinclude`` with a caption; one without a caption shows a part;
* a ``console`` block is a session in a shell, in the folder of those files: text after a ``$`` is run, and
  the lines below it must be printed (``...`` stands for anything). A command that ends in ``&`` runs until the
  page ends, and must listen at a port before the next one starts. Nothing is installed: the tests have all packages,
  so ``pip install`` is checked and not run;
* a comment that begins with ``<!-- run`` or ``<!-- console`` is such a block that the reader does not see: it has
  the objects that the page assumes (``await connected()`` gives two endpoints), and checks results;
* ``sh`` blocks are commands for a clean clone, which ``.ci/run`` runs; ``text`` blocks are pictures.
"""

import ast
import doctest
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from inspect import iscoroutine
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psutil

import aiofabric
from aiofabric import MessageEndpoint

ROOT = Path(__file__).parent.parent.parent
WIDTH = 80  # characters of a line of code that a page shows whole
TIMEOUT = 60
SHOWN = {"sh", "text", "toml", "ini", "markdown", "{eval-rst}", "{toctree}", "{include}", "{note}", "{warning}"}

_HIDDEN = {"<!-- run": "python", "<!-- console": "console"}
_FENCE = re.compile(r"^(?P<fence>```+)(?P<language>\S*) ?(?P<argument>.*)$")
_PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@dataclass(frozen=True)
class Block:
    """A block of a page: ``python``, ``console``, or a file by its name."""

    kind: str
    text: str
    line: int


def blocks(path: Path) -> Iterator[Block]:
    """The blocks that are code, in order."""
    lines = enumerate(path.read_text().splitlines(), 1)
    for number, line in lines:
        if line in _HIDDEN:
            yield Block(_HIDDEN[line], _until(lines, "-->"), number)
        elif fence := _FENCE.match(line):
            language, argument = fence["language"], fence["argument"]
            body = _until(lines, fence["fence"])
            if language == "{code-block}":
                caption = re.search(r"^:caption: (.*)$", body, re.MULTILINE)
                language = argument
                kind = caption[1] if caption else argument
                body = re.sub(r"^:\w+:.*\n", "", body, flags=re.MULTILINE).lstrip("\n")
            else:
                title = re.fullmatch(r'title="(.*)"', argument)
                kind = title[1] if title else language
            if language == "{literalinclude}":
                caption = re.search(r"^:caption: (.*)$", body, re.MULTILINE)
                if caption:
                    yield Block(caption[1], (path.parent / argument).read_text(), number)
                continue
            if kind.endswith((".py", ".proto")) or kind in ("python", "console"):
                yield Block(kind, body, number)
            elif language not in SHOWN:
                raise AssertionError(f"{path}:{number}: no test runs {language or 'unnamed'} blocks")


def _until(lines: Iterator[tuple[int, str]], end: str) -> str:
    body = []
    for _, line in lines:
        if line == end:
            break
        body.append(line)
    return "\n".join(body)


async def connected(**options: Any) -> tuple[MessageEndpoint, MessageEndpoint]:
    """Both endpoints of a connection of this process, for hidden blocks: the one that connected, the one that accepted.

    The options are the connecting one's.
    """
    accepted: list[MessageEndpoint] = []

    async def accept(listener: aiofabric.Listener) -> None:
        accepted.append(await (await listener.accept_request()).accept())

    async with aiofabric.listen("127.0.0.1", 0, provider="tcp") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(accept, listener)
        active = await aiofabric.connect(listener.address, provider="tcp", **options)
    return active, accepted[0]


class Page:
    """A page that runs: its session, its folder, and the programs that it left running."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.session: dict[str, Any] = {"__name__": path.stem, "connected": connected}
        self._background = ExitStack()

    async def run(self) -> None:
        """Every block, one after the other."""
        with self._background:
            for block in blocks(self.path):
                with anyio.fail_after(TIMEOUT):
                    if block.kind == "python":
                        await self._python(block)
                    elif block.kind == "console":
                        await anyio.to_thread.run_sync(self._console, block)
                    else:
                        (self.folder / block.kind).write_text(block.text)

    async def _python(self, block: Block) -> None:
        source = "\n" * block.line + block.text  # so that a traceback names the line of the page
        code = compile(source, str(self.path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        outcome = eval(code, self.session)
        if iscoroutine(outcome):
            await outcome

    def _console(self, block: Block) -> None:
        for command, expected in _commands(block.text):
            if command.startswith("pip install "):
                _check_installation(command)
            elif command.endswith("&"):
                assert not expected, f"{self.path}:{block.line}: what a background program prints is not checked"
                self._start(command.removesuffix("&").strip())
            else:
                printed = self._shell(command)
                checker, options = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
                if expected and not checker.check_output(expected, printed, options):
                    raise AssertionError(
                        f"{self.path}:{block.line}: {command} printed\n{printed}instead of\n{expected}"
                    )

    def _shell(self, command: str) -> str:
        ended = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=os.environ | {"PATH": _PATH}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{self.path}: {command} ended with {ended.returncode}:\n{ended.stdout}"
        return ended.stdout

    def _start(self, command: str) -> None:
        program = subprocess.Popen(shlex.split(command), cwd=self.folder, env=os.environ | {"PATH": _PATH})
        self._background.enter_context(program)
        self._background.callback(program.kill)
        process = psutil.Process(program.pid)
        while not any(each.status == psutil.CONN_LISTEN for each in process.net_connections()):
            assert program.poll() is None, f"{self.path}: {command} ended with {program.returncode}"
            time.sleep(0.005)  # it needs the core to get there


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command, and its expected output."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        while command.endswith("\\"):
            more, _, expected = expected.partition("\n")
            command = command.removesuffix("\\") + more.strip()
        yield command.partition("  #")[0].strip(), expected


def _check_installation(command: str) -> None:
    """Each package to install is aiofabric, or listed in our project file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    lists = [*extras.values(), *project["dependency-groups"].values()]
    known = {re.split(r"[^\w-]", each)[0] for some in lists for each in some if isinstance(each, str)} | {"mpich"}
    for word in shlex.split(command)[2:]:
        name, _, extra = word.rstrip("]").partition("[")
        if name in ("aiofabric", "."):
            assert not extra or set(extra.split(",")) <= set(extras), command
        else:
            assert name in known, command
