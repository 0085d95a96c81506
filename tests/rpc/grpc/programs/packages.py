"""grpcio's companions: rich errors, health checking, reflection."""

from __future__ import annotations

import asyncio
from typing import Any

from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from tests.rpc.grpc.generated import pb2
from tests.rpc.grpc.programs.marks import outcome, program
from tests.rpc.grpc.service import Interop, connected


@program
async def a_rich_error(aio: Any) -> Any:
    class Rich(Interop):
        async def Unary(self, request: Any, context: Any) -> Any:
            detail = any_pb2.Any()
            detail.Pack(error_details_pb2.RetryInfo())
            failure = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message="full", details=[detail])
            await context.abort_with_status(rpc_status.to_status(failure))

    async with connected(aio, Rich()) as stub:
        try:
            await stub.Unary(pb2.Request())
        except aio.AioRpcError as error:
            found = rpc_status.from_call(error)
            kinds = [detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in found.details]
            return found.code, found.message, kinds, error.code().name


async def _channel_to(aio: Any, add: Any) -> Any:
    server = aio.server()
    add(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, aio.insecure_channel(f"127.0.0.1:{port}")


@program
async def health_checks(aio: Any) -> Any:
    servicer = health.aio.HealthServicer()
    server, channel = await _channel_to(
        aio, lambda server: health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    )
    request, seen = health_pb2.HealthCheckRequest(service="interop"), []
    try:
        async with channel:
            stub = health_pb2_grpc.HealthStub(channel)
            seen.append((await stub.Check(health_pb2.HealthCheckRequest())).status)
            seen.append(await outcome(stub.Check(request)))
            watch = stub.Watch(request)
            seen.append((await watch.read()).status)
            for status in (health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING):
                await servicer.set("interop", status)
                seen.append((await asyncio.wait_for(watch.read(), 10)).status)
            await servicer.enter_graceful_shutdown()
            seen.append((await stub.Check(health_pb2.HealthCheckRequest())).status)
            watch.cancel()
        return seen
    finally:
        await server.stop(None)


@program
async def reflection_of_services(aio: Any) -> Any:
    names = [pb2.DESCRIPTOR.services_by_name["Interop"].full_name, reflection.SERVICE_NAME]
    server, channel = await _channel_to(aio, lambda server: reflection.enable_server_reflection(names, server))
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=names[0]),
        reflection_pb2.ServerReflectionRequest(file_by_filename="missing.proto"),
    ]
    try:
        async with channel:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            return [
                response.SerializeToString(deterministic=True)
                async for response in stub.ServerReflectionInfo(iter(requests))
            ]
    finally:
        await server.stop(None)
