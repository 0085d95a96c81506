"""asyncio transports, servers and streams over a fabric, with asyncio's own names and arguments.

Code for ``loop.create_connection``, ``loop.create_server``, ``asyncio.open_connection`` or ``asyncio.start_server``
also runs with the functions of the same names here, on asyncio's loop and on uvloop's.

Two ends differ from those of kernel sockets. ``close()`` with unread data is an orderly end for the peer, not a reset:
``connection_lost`` gets None, and the peer does not learn that its data was discarded. ``abort()`` is always a reset
for the peer, also on an idle connection: its reader raises ``ConnectionResetError``.
"""

from aiofabric.aio.connect import create_connection as create_connection
from aiofabric.aio.connect import create_server as create_server
from aiofabric.aio.connect import open_connection as open_connection
from aiofabric.aio.connect import start_server as start_server
from aiofabric.aio.server import Server as Server
from aiofabric.aio.sockinfo import FabricSocket as FabricSocket
from aiofabric.aio.tls import start_tls as start_tls
from aiofabric.aio.transport import FabricTransport as FabricTransport

__all__ = [
    "FabricSocket",
    "FabricTransport",
    "Server",
    "create_connection",
    "create_server",
    "open_connection",
    "start_server",
    "start_tls",
]
