"""Layer 5: remote procedure calls over fabric messages, with gRPC's semantics.

* `client`, `server` and `serving`: the public interface for messages that are bytes; `status`: how calls end
* `grpc`: the interface of grpc.aio
* `channel`: the client's connections, and calls with their attempts
* `runtime`: the protocol on endpoints; `protocol`: the protocol without I/O

This package imports neither grpc nor protobuf, except in `grpc`.
"""

from .channel.service_config import ServiceConfig as ServiceConfig
from .channel.subchannel import Connectivity as Connectivity
from .client import Call as Call
from .client import Channel as Channel
from .protocol.connection import Limits as Limits
from .protocol.status import StatusCode as StatusCode
from .server import Server as Server
from .server import stream_stream as stream_stream
from .server import stream_unary as stream_unary
from .server import unary_stream as unary_stream
from .server import unary_unary as unary_unary
from .serving import Handler as Handler
from .serving import ServerContext as ServerContext
from .status import RpcError as RpcError

__all__ = [
    "Call",
    "Channel",
    "Connectivity",
    "Handler",
    "Limits",
    "RpcError",
    "Server",
    "ServerContext",
    "ServiceConfig",
    "StatusCode",
    "stream_stream",
    "stream_unary",
    "unary_stream",
    "unary_unary",
]
