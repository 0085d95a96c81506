"""Serve an ASGI application over a fabric (the extra ``http``). Ctrl-C and SIGTERM end it in order."""

from __future__ import annotations

import argparse
import errno
import logging
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio

from aiofabric.cli.load import load
from aiofabric.cli.loop import run as run_loop
from aiofabric.cli.unsupported import UsageError, check_provider, port
from aiofabric.cli.workers import serve_as_worker, serve_by_workers
from aiofabric.errors import FabricError, NameResolutionError, NoProviderError
from aiofabric.transport.connect import listen, reserve

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from types import FrameType

__all__ = ["configure", "run"]


_LEVELS = ("critical", "error", "warning", "info", "debug")


def configure(parser: ArgumentParser) -> None:
    """Describe the arguments."""
    ask = parser.add_argument
    ask("app", metavar="module:app", help="the application; the working directory is searched first")
    ask("--server", choices=SERVERS, default="uvicorn", help="the HTTP server (%(default)s); hypercorn has HTTP/2")
    ask("-p", "--provider", metavar="NAME", help="provider, such as tcp; by default the first that has the address")
    ask("-s", "--src_addr", metavar="HOST", default="127.0.0.1", help="the address to listen at (%(default)s)")
    ask("-P", "--port", metavar="PORT", type=port, default=8000, help="0 lets the provider choose (%(default)s)")
    ask("--factory", action="store_true", help="module:app is a function that returns the application")
    ask("-w", "--workers", metavar="COUNT", type=_count, default=1, help="processes that serve (%(default)s)")
    ask("--worker-of", metavar="DESCRIPTOR", type=int, help=argparse.SUPPRESS)
    ask("--log-level", choices=_LEVELS, default="info", help="log level of the server (%(default)s)")


def run(options: Namespace) -> int:
    """Serve until a signal ends it."""
    serve = SERVERS[options.server]
    _check_form(options.app)
    check_provider(options.provider)
    run_loop(_try_to_listen, options)
    if options.workers > 1:
        _show_log(options.log_level)
        told = anyio.run(serve_by_workers, options)
        return 1 if told is None else _raise_again(told)
    sys.path.insert(0, "")
    app = load(options.app)
    if options.factory:
        app = app()
    if not callable(app):
        raise ValueError(f"{options.app} is not an ASGI application: {type(app).__name__} objects cannot be called")
    signal.signal(signal.SIGTERM, _end)
    _show_log(options.log_level)
    return serve(app, options)


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"the number of workers must be 1 to 1024, not {text!r}")
    return int(text)


def _show_log(level: str) -> None:
    """Print aiofabric's log as uvicorn prints its own: it tells of clients that are refused."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s:     %(message)s"))
    log = logging.getLogger("aiofabric")
    log.addHandler(handler)
    log.setLevel(level.upper())


def _end(number: int, _: FrameType | None) -> None:
    """The server has ended in order, and raises its signal again: write the application's output before that."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _check_form(name: str) -> None:
    if not all(name.partition(":")):
        raise UsageError(f"{name!r} is not of the form module:app")


async def _try_to_listen(options: Namespace) -> None:
    """Check, before the application starts, whether the address can be listened at.

    If the provider supports it, the address is only reserved: an early client must be refused, not accepted and
    dropped.
    """
    where = (options.src_addr, options.port)
    try:
        try:
            async with reserve(*where, provider=options.provider):
                pass
        except NoProviderError:  # the provider has no connections of its own: the port is a TCP port
            async with listen(*where, provider=options.provider):
                pass
    except (NameResolutionError, NoProviderError, ValueError) as error:
        raise UsageError(f"-s {options.src_addr}: {error}") from error
    except FabricError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise UsageError(f"-s {options.src_addr} is not one of this host's addresses") from error
        if error.errno == errno.EADDRINUSE:
            raise OSError(f"port {options.port} at {options.src_addr} is in use: -P chooses another") from error
        raise


def _uvicorn(app: Any, options: Namespace) -> int:
    try:
        import uvicorn

        from aiofabric.integrations.uvicorn import FabricServer
    except ImportError as error:
        raise _missing(error) from error

    config = uvicorn.Config(app, host=options.src_addr, port=options.port, log_level=options.log_level)
    server = FabricServer(config, provider=options.provider)
    run_loop(serve_as_worker, server, server.serve, options.worker_of)
    return 0 if server.started else 1


def _hypercorn(app: Any, options: Namespace) -> int:
    try:
        import hypercorn

        from aiofabric.integrations.hypercorn import FabricServer
    except ImportError as error:
        raise _missing(error) from error

    host = f"[{options.src_addr}]" if ":" in options.src_addr else options.src_addr
    config = hypercorn.Config.from_mapping(bind=f"{host}:{options.port}", loglevel=options.log_level)
    server = FabricServer(app, config, provider=options.provider)
    told: list[signal.Signals] = []

    async def serve() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

            async def told_to_stop() -> None:
                told.append(await anext(signals))

            await server.serve(shutdown_trigger=told_to_stop)

    run_loop(serve_as_worker, server, serve, options.worker_of)
    for number in told:
        _raise_again(number)
    return 0


def _raise_again(number: signal.Signals) -> int:
    """Raise the signal again, as uvicorn does it: the parent process sees which signal ended this one."""
    if number == signal.SIGTERM:
        _end(number, None)  # the loop has removed its handlers, and put the default in their place
    signal.raise_signal(number)
    return 0


SERVERS = {"uvicorn": _uvicorn, "hypercorn": _hypercorn}


def _missing(error: ImportError) -> ImportError:
    return ImportError(f"{error}; serving needs, in a clone of aiofabric: pip install '.[http]'")
