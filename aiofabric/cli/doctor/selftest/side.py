"""One side of a check, in a process of its own: ``... .selftest.side lead PROVIDER KIND CHECK SIZES IDLE``.

``... .selftest.side follow`` is the other side. The standard input of both is the control connection.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiofabric.cli.doctor.host import describe
from aiofabric.cli.doctor.selftest.control import Control, PeerError, control_of
from aiofabric.cli.doctor.selftest.operations import OPERATIONS
from aiofabric.cli.doctor.selftest.options import DESCRIBE, CheckOptions
from aiofabric.cli.loop import run
from aiofabric.cli.sentence import reason, sentence
from aiofabric.errors import FabricError, NotSupportedError

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["main"]

_FIRST = 10.0  # seconds until the measuring side has sent its options
_LATER = 1.0  # seconds after which the reason of the other side may follow a broken connection


async def _lead(connection: socket.socket, options: CheckOptions) -> dict[str, Any]:
    """Run the check; return its figures, and the failure if there was one."""
    figures: dict[str, Any] = {}
    async with control_of(connection, leads=True) as control:
        try:
            await control.send(**options._asdict())
            await _unless_lost(control, OPERATIONS[options.check].lead(control, options, figures))
        except Exception as error:
            return {"figures": figures, **await _failure(control, error)}
    return {"figures": figures}


async def _unless_lost(control: Control, work: Coroutine[Any, Any, None]) -> None:
    """Do the work; raise at once if the other side ends before, because not every provider reports that."""
    task, lost = asyncio.ensure_future(work), asyncio.ensure_future(control.lost.wait())
    try:
        await asyncio.wait((task, lost), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise PeerError(control.reason())
        task.result()
    finally:
        for each in (task, lost):
            each.cancel()
        await asyncio.wait((task, lost))


async def _failure(control: Control, error: BaseException) -> dict[str, str]:
    error = reason(error)
    text = sentence(error)
    if isinstance(error, NotSupportedError):
        return {"unsupported": text}
    if isinstance(error, FabricError):  # the other side may have the cause; it comes behind the broken connection
        with suppress(TimeoutError):
            async with asyncio.timeout(_LATER):
                await control.lost.wait()
        if control.failure:
            text += f"; {control.reason()}"
    return {"failure": text}


async def _follow(connection: socket.socket) -> None:
    async with control_of(connection, leads=False) as control:
        try:
            async with asyncio.timeout(_FIRST):
                options = CheckOptions(**await control.receive())
            if options.check == DESCRIBE:
                await control.send(**describe())
                return
            await _unless_lost(control, OPERATIONS[options.check].follow(control, options))
        except PeerError:
            pass  # the measuring side has the reason
        except Exception as error:
            with suppress(OSError):
                await control.send(failure=sentence(error))


def main(role: str, *arguments: str) -> None:
    """Run one side."""
    connection = socket.socket(fileno=os.dup(0))
    if role == "follow":
        run(_follow, connection)
        return
    provider, kind, check, sizes, idle = arguments
    options = CheckOptions(provider, kind, check, json.loads(sizes), float(idle))
    try:
        answer = run(_lead, connection, options)
    except Exception as error:
        answer = {"failure": sentence(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
