"""grpc.aio's public interface on RPC over fabric messages: ``from aiofabric.rpc import grpc as aio``.

Interfaces, errors and plain values are grpcio's own classes. Channels, servers and calls are not: nothing here opens a
connection of gRPC's. A client and a server must both use this package.
"""

from .client.channel import insecure_channel as insecure_channel
from .client.channel import secure_channel as secure_channel
from .client.intercepted import InterceptedUnaryUnaryCall as InterceptedUnaryUnaryCall
from .errors import CallFailedError as CallFailedError
from .grpcio import EOF as EOF
from .grpcio import aio as _aio
from .server.server import server as server

AbortError = _aio.AbortError
AioRpcError = _aio.AioRpcError
BaseError = _aio.BaseError
Call = _aio.Call
Channel = _aio.Channel
ClientCallDetails = _aio.ClientCallDetails
ClientInterceptor = _aio.ClientInterceptor
InternalError = _aio.InternalError
Metadata = _aio.Metadata
RpcContext = _aio.RpcContext
Server = _aio.Server
ServerInterceptor = _aio.ServerInterceptor
ServicerContext = _aio.ServicerContext
StreamStreamCall = _aio.StreamStreamCall
StreamStreamClientInterceptor = _aio.StreamStreamClientInterceptor
StreamStreamMultiCallable = _aio.StreamStreamMultiCallable
StreamUnaryCall = _aio.StreamUnaryCall
StreamUnaryClientInterceptor = _aio.StreamUnaryClientInterceptor
StreamUnaryMultiCallable = _aio.StreamUnaryMultiCallable
UnaryStreamCall = _aio.UnaryStreamCall
UnaryStreamClientInterceptor = _aio.UnaryStreamClientInterceptor
UnaryStreamMultiCallable = _aio.UnaryStreamMultiCallable
UnaryUnaryCall = _aio.UnaryUnaryCall
UnaryUnaryClientInterceptor = _aio.UnaryUnaryClientInterceptor
UnaryUnaryMultiCallable = _aio.UnaryUnaryMultiCallable
UsageError = _aio.UsageError


def init_grpc_aio() -> None:
    """Nothing to do: there is no library to start."""


def shutdown_grpc_aio() -> None:
    """Nothing to do."""
