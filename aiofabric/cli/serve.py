"""Serve an ASGI application over a fabric, under uvicorn (the extra ``http``). Ctrl-C ends it in good order."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from aiofabric.cli.loop import run as run_loop

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

__all__ = ["configure", "run"]


def configure(parser: ArgumentParser) -> None:
    """Describe the arguments."""
    ask = parser.add_argument
    ask("app", metavar="module:app", help="the application, looked for from the working directory, too")
    ask("-p", "--provider", metavar="NAME", help="provider, such as tcp; by default the first that has the address")
    ask("-s", "--src_addr", metavar="HOST", default="127.0.0.1", help="where to listen (%(default)s)")
    ask("-P", "--port", metavar="PORT", type=int, default=8000, help="0 lets the provider choose (%(default)s)")
    ask("--factory", action="store_true", help="module:app is a function that returns the application")
    ask("--log-level", metavar="LEVEL", default="info", help="uvicorn's (%(default)s)")


def run(options: Namespace) -> int:
    """Serve until told to stop."""
    try:
        import uvicorn

        from aiofabric.integrations.asgi import FabricServer
    except ImportError as error:
        raise ImportError(f"{error}; serving needs: pip install aiofabric[http]") from error

    sys.path.insert(0, "")
    config = uvicorn.Config(
        options.app,
        host=options.src_addr,
        port=options.port,
        factory=options.factory,
        log_level=options.log_level,
    )
    try:
        config.load()
    except SystemExit:  # uvicorn has said that there is no such application
        return 1
    server = FabricServer(config, provider=options.provider)
    run_loop(server.serve)
    return 0 if server.started else 1
