"""Distribute jobs over one RDM endpoint. Each worker receives its jobs by tag, and results are received by mask.

The upper half of a tag is the kind of message, the lower half the number of the worker.
"""

import anyio

import aiofabric
from aiofabric import EndpointType, Peer, RdmEndpoint

WORKERS, JOBS = 3, 9
JOB, RESULT, STOP = (kind << 32 for kind in (1, 2, 3))
ANY_WORKER = 0xFFFF_FFFF  # these bits of the tag may differ
ANY_KIND = 0xFFFF_FFFF << 32


async def worker(number: int, endpoint: RdmEndpoint, dispatcher: Peer) -> None:
    done = 0
    while True:
        message = await endpoint.recv_tagged(number, ignore=ANY_KIND)
        if message.tag == STOP | number:
            print(f"worker {number} did {done} jobs")
            return
        square = int(message) ** 2
        await endpoint.send_tagged(b"%d" % square, RESULT | number, to=dispatcher)
        done += 1


async def dispatch(endpoint: RdmEndpoint, workers: Peer) -> None:
    for job in range(JOBS):
        await endpoint.send_tagged(b"%d" % job, JOB | job % WORKERS, to=workers)
    total = 0
    for _ in range(JOBS):
        message = await endpoint.recv_tagged(RESULT, ignore=ANY_WORKER)
        total += int(message)
    print("sum of the squares:", total)
    for number in range(WORKERS):
        await endpoint.send_tagged(b"", STOP | number, to=workers)


async def main() -> None:
    async with (
        aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1") as ours,
        aiofabric.open_endpoint(EndpointType.RDM, "127.0.0.1") as theirs,
        anyio.create_task_group() as tasks,
    ):
        dispatcher = await theirs.add_peer(ours.local_address)
        for number in range(WORKERS):
            tasks.start_soon(worker, number, theirs, dispatcher)
        await dispatch(ours, await ours.add_peer(theirs.local_address))


if __name__ == "__main__":
    anyio.run(main)
