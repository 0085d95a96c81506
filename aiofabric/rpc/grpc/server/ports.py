"""Ports: hold a TCP port from `add_insecure_port`, which cannot wait, until the server listens."""

from __future__ import annotations

import errno
import socket

from ....cm.clients.targets import NOT_SUPPORTED, split_host_port

__all__ = ["Port"]

_ANYWHERE = ("", "0.0.0.0", "::", "[::]", "*")


class Port:
    """A port of this machine, reserved by a bound socket. ``node`` and ``service`` are what to listen at."""

    def __init__(self, address: str) -> None:
        try:
            host, port = _parts(address)
            self._socket = _bound("" if host in _ANYWHERE else host, int(port))
        except (OSError, ValueError) as error:
            raise RuntimeError(f"Failed to bind to address {address}: {error}") from error
        name = self._socket.getsockname()
        self.number: int = name[1]
        self.node: str | None = None if host in _ANYWHERE else name[0]
        self.service = str(self.number)

    def allow_bind(self) -> None:
        """Allow the listener to bind to the port; `close` when it has. A port that was closed is free already."""
        if self._socket.fileno() >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def close(self) -> None:
        """Free the port."""
        self._socket.close()


def _parts(address: str) -> tuple[str, str]:
    scheme = address.partition(":")[0]
    if scheme in NOT_SUPPORTED:
        raise ValueError(f"the scheme {scheme} is not supported: use a host and a port")
    if ":" not in address.rpartition("]")[2]:
        raise ValueError(f"it has no port: add one, such as {address}:50051, or {address}:0 for any free one")
    return split_host_port(address)


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, place = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    # A port that another socket holds is refused only without SO_REUSEADDR; one with old connections only with it.
    for reuse in (0, 1):
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
            bound.bind(place)
        except OSError as error:
            bound.close()
            if reuse or error.errno != errno.EADDRINUSE:
                raise
        except BaseException:
            bound.close()
            raise
        else:
            return bound
    raise AssertionError
