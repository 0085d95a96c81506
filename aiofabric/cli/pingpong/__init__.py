"""Ping-pong between two hosts: latency and bandwidth of each message size.

Without the name of a server, it is the server, which ends after one client. Either side may be libfabric's own
fi_pingpong: the flags, the columns and the protocol are the same (man page: fi_pingpong).
"""

from __future__ import annotations

import argparse
import logging

from aiofabric.cli.loop import run as run_loop
from aiofabric.cli.pingpong.control import PORT
from aiofabric.cli.pingpong.data_path import hints_of
from aiofabric.cli.pingpong.match import play
from aiofabric.cli.unsupported import UsageError, check_provider, port, unmet
from aiofabric.errors import NoProviderError
from aiofabric.flags import EndpointType
from aiofabric.info import Info, getinfo

__all__ = ["configure", "run"]

_FLAGS = {"provider": "-p", "domain": "-d", "fabric": "-f", "source": "-s", "kind": "-e", "mode": "-m"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    add = parser.add_argument
    add("server", nargs="?", metavar="server", help="host name or address to connect to; none: be the server")
    add(
        "-B", dest="source_port", metavar="PORT", type=port, default=0,
        help=f"own control port (server: {PORT}, client: any)",
    )  # fmt: skip
    add("-P", dest="port", metavar="PORT", type=port, default=PORT, help="the server's control port (%(default)d)")
    add("-d", dest="domain", metavar="DOMAIN", default="", help="domain name")
    add("-f", dest="fabric", metavar="FABRIC", default="", help="fabric name")
    add("-s", dest="source", metavar="ADDRESS", help="numeric source address")
    add("-p", dest="provider", metavar="PROVIDER", default="", help="provider name, such as tcp")
    add(
        "-e", dest="kind", metavar="TYPE", type=str.lower, choices=("msg", "rdm", "dgram"), default="dgram",
        help="endpoint type: msg, rdm or dgram (%(default)s)",
    )  # fmt: skip
    add("-I", dest="iterations", metavar="NUMBER", type=_iterations, default=10, help="iterations (%(default)d)")
    add("-S", dest="size", metavar="SIZE", type=_size, help="one message size in bytes, or 'all' (the usual ones)")
    add("-c", dest="check", action="store_true", help="check the data; the other side must also have -c")
    add(
        "-m", dest="mode", metavar="MODE", choices=("msg", "tagged"), default="msg",
        help="kind of messages: msg or tagged (%(default)s)",
    )  # fmt: skip
    add("-v", dest="verbose", action="store_true", help="log each step on stderr")
    add("-6", dest="ipv6", action="store_true", help="IPv6 for the control channel")


def run(options: argparse.Namespace) -> int:
    """Measure once, with one peer."""
    options.kind = EndpointType[options.kind.upper()]
    if options.verbose:
        logging.basicConfig(format="[debug] %(message)s")
        logging.getLogger("aiofabric").setLevel(logging.DEBUG)
    _check(options)
    run_loop(play, options)
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse options that no provider meets, before connecting to the other side."""
    try:
        _ask(options)
    except NoProviderError:
        check_provider(options.provider)
        raise UsageError(unmet(options, _FLAGS, _ask)) from None


def _ask(options: argparse.Namespace) -> list[Info]:
    return getinfo(hints=hints_of(options))


def _natural(text: str) -> int:
    if not text.isdigit():
        raise ValueError(text)
    return int(text)


def _iterations(text: str) -> int:
    if (number := _natural(text)) == 0:
        raise argparse.ArgumentTypeError("there is nothing to measure with 0 iterations")
    return number


def _size(text: str) -> int | str:
    return text if text == "all" else _natural(text)


_natural.__name__, _iterations.__name__, _size.__name__ = "number", "number", "size"  # argparse names them to the user
