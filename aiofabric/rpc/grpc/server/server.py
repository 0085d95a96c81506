"""Server: grpc.aio's server on the runtime's."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from ...._core import HandlerPlan, TaskSet
from ...protocol.status import StatusCode
from ...runtime.server import ServerCore
from ..callbacks import stop_loop_with
from ..errors import unexpected
from ..grpcio import aio
from ..metadata import ENCODING
from ..options import checked, compressions, endpoint_arguments, limits_of
from .context import ServicerContext
from .handling import NOT_FOUND, behaviour_of, handle, handler_ended, handler_failed
from .ports import Port
from .registry import Registry
from .rpc import Plan, ServerRpc

__all__ = ["Server", "server"]


_log = logging.getLogger(__name__)


class Server(aio.Server):
    """A server as grpc.aio's. It belongs to the loop in which it is started."""

    loop: asyncio.AbstractEventLoop

    def __init__(
        self, pool: Any, handlers: Any, interceptors: Any, options: Any, most: int | None, compression: Any
    ) -> None:
        if most is not None and most <= 0:
            raise ValueError(f"maximum_concurrent_rpcs must be positive: {most}")
        self.pool = pool
        self._registry = Registry(handlers, interceptors)
        self._options = checked(options)
        self._compressions = compressions(self._options)
        self._most = most
        self._ports: list[Port] = []
        self._core: ServerCore | None = None
        self._context = Context()
        self._behaviours: dict[Any, tuple[Any, str]] = {}
        self.plans: dict[str, Plan] = {}
        self._stopped = asyncio.Event()
        self._stopping: set[asyncio.Task[None]] = set()

    # -- before the start

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Any) -> None:
        """Add handlers that are asked for each call."""
        self._registry.generic.extend(generic_rpc_handlers)
        self.plans.clear()

    def add_registered_method_handlers(self, service_name: str, method_handlers: dict[str, Any]) -> None:
        """Add the handlers of a service's methods; they come before generic ones."""
        if self._core is not None:
            _log.warning("Cannot register method handlers once the server has started")
            return
        self._registry.register(service_name, method_handlers)

    def add_insecure_port(self, address: str | bytes) -> int:
        """Listen at one more address from the start on; returns the port. RuntimeError if it is taken."""
        if self._core is not None:
            raise RuntimeError("add_insecure_port() must be called before the server starts")
        if not isinstance(address, str | bytes):
            raise TypeError(f"The address of a server must be a str such as '127.0.0.1:50051', not {address!r}")
        port = Port(address.decode() if isinstance(address, bytes) else address)
        self._ports.append(port)
        return port.number

    def add_secure_port(self, address: str, server_credentials: Any) -> int:
        """TLS is not bound yet: raises RuntimeError."""
        raise RuntimeError(
            f"Failed to bind to address {address}: aiofabric's RPC does not support TLS yet: use "
            "add_insecure_port() on a network that you trust"
        )

    async def start(self) -> None:
        """Listen, and handle calls."""
        if self._core is not None:
            if not self._stopping:
                return
            raise aio.UsageError("Server not in ready state")
        self.loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._core = core = ServerCore(partial(ServerRpc, self), limits_of(self._options))
        for port in self._ports:
            port.allow_bind()
            try:
                await core.listen(port.node, port.service, **endpoint_arguments(self._options))
            finally:
                port.close()

    # -- calls

    def begin(self, rpc: ServerRpc) -> None:
        """Run the handler of a call that has begun."""
        core = self._core
        if core is None or not isinstance(rpc, ServerRpc):
            raise TypeError(f"a server begins the calls of its own connections, not {rpc!r:.100}")
        if rpc.deadline is not None:
            core.deadlines.add(rpc)
        if self._registry.interceptors:
            self.run(rpc, self._intercepted)
            return
        handler = self._registry.find(rpc.method, rpc.metadata)
        if (handler is None or self._most is not None or rpc.metadata) and self._refused(rpc, handler):
            rpc.release()
            return
        plan = self._plan(handler)
        if self._most is None and self._registry.fixed(rpc.method):
            self.plans[rpc.method] = plan
        self.run(rpc, plan)

    def _plan(self, handler: Any) -> Plan:
        behaviour, how = self._behaviour(handler)
        handle_any: Plan = partial(handle, handler, behaviour, how)
        tasks = self._core.tasks if self._core is not None else None
        unary = not (handler.request_streaming or handler.response_streaming)
        if how != "coroutine" or not unary or not isinstance(tasks, TaskSet):
            return handle_any
        return HandlerPlan(
            behaviour,
            handler.request_deserializer,
            handler.response_serializer,
            ServicerContext,
            handle_any,
            handler_failed,
            handler_ended,
            tasks,
            self._context,
        )

    def run(self, rpc: ServerRpc, plan: Plan) -> None:
        """Run ``plan`` in a task of its own, with a fresh copy of the server's context."""
        assert self._core is not None
        coroutine = plan(rpc)
        try:
            task: Any = self._core.tasks.start(coroutine, self._context.copy(), rpc.release, rpc.method)
        except BaseException:
            coroutine.close()
            raise
        rpc.task = task

    def failed_to_begin(self, rpc: ServerRpc, error: BaseException) -> None:
        """End a call whose handler could not be found or started."""
        _log.error("The handler of %s could not be started", rpc.method, exc_info=error)
        rpc.reject(StatusCode.UNKNOWN, unexpected(error))
        rpc.release()
        if isinstance(error, KeyboardInterrupt):
            stop_loop_with(error, self.loop)

    async def _intercepted(self, rpc: ServerRpc) -> None:
        try:
            handler = await self._registry.find_through_interceptors(rpc.method, rpc.metadata)
        except BaseException as error:
            if not handler_failed(rpc, error, "interceptor"):
                raise
            return
        if not self._refused(rpc, handler, own=1):
            await handle(handler, *self._behaviour(handler), rpc)

    def _refused(self, rpc: ServerRpc, handler: Any, own: int = 0) -> bool:
        if handler is None:
            rpc.reject(StatusCode.UNIMPLEMENTED, NOT_FOUND)
        elif self._most is not None and self._core is not None and len(self._core.tasks) - own >= self._most:
            rpc.reject(StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!")
        elif rpc.metadata and self._compression_refused(rpc):
            rpc.reject(
                StatusCode.UNIMPLEMENTED,
                "The server's grpc.compression_enabled_algorithms_bitset excludes the compression of this call",
            )
        else:
            return False
        return True

    def _compression_refused(self, rpc: ServerRpc) -> bool:
        return any(key == ENCODING and value not in self._compressions for key, value in rpc.metadata)

    def _behaviour(self, handler: Any) -> tuple[Any, str]:
        try:
            return self._behaviours[handler]
        except KeyError:
            if len(self._behaviours) > 1000:
                self._behaviours.clear()
            found = self._behaviours[handler] = behaviour_of(handler)
            return found
        except Exception:  # it cannot be hashed or compared
            return behaviour_of(handler)

    # -- the end

    async def stop(self, grace: float | None) -> None:
        """Accept no more calls. Running calls may take ``grace`` seconds; the rest ends with UNAVAILABLE.

        A server that has not started frees its ports until it does.
        """
        if self._core is None:
            for port in self._ports:
                port.close()
            return
        task = self.loop.create_task(self._stop(self._core, grace))
        self._stopping.add(task)  # it goes on if this task is cancelled
        await asyncio.shield(task)

    async def _stop(self, core: ServerCore, grace: float | None) -> None:
        await core.stop(grace)
        self._stopped.set()

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; True if ``timeout`` seconds passed before."""
        try:
            async with asyncio.timeout(timeout):
                await self._stopped.wait()
        except TimeoutError:
            return True
        return False


def server(
    migration_thread_pool: Any = None,
    handlers: Any = None,
    interceptors: Any = None,
    options: Any = None,
    maximum_concurrent_rpcs: int | None = None,
    compression: Any = None,
) -> Server:
    """A server; arguments as grpc.aio's."""
    return Server(migration_thread_pool, handlers, interceptors, options, maximum_concurrent_rpcs, compression)
