"""One producer and three workers in processes of their own. One worker is killed, and no item is lost."""

import multiprocessing
import signal

import anyio

from aiofabric.pipeline import Pull, Push

ITEMS = 3000
processes = multiprocessing.get_context("spawn")


async def worker(jobs_port: int, results_port: int) -> None:
    async with Pull(f"127.0.0.1:{jobs_port}", window=100) as jobs, Push(f"127.0.0.1:{results_port}") as results:
        async for job in jobs:
            await results.push(str(2 * int(job.data)).encode(), header=bytes([job.redelivered]))
            await results.drain()  # the result has arrived; the next step of the loop acknowledges the job


async def main() -> None:
    done: dict[int, bool] = {}
    async with Pull(listen="127.0.0.1:0", producers=None) as results, anyio.create_task_group() as tasks:

        async def collect() -> None:
            async for result in results:
                done[int(result.data)] = bool(result.header[0])

        tasks.start_soon(collect)
        async with Push(listen="127.0.0.1:0") as jobs:
            ports = jobs.address.port, results.address.port
            workers = [processes.Process(target=anyio.run, args=(worker, *ports), daemon=True) for _ in range(3)]
            interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: Ctrl-C ends only this process
            for each in workers:
                each.start()
            signal.signal(signal.SIGINT, interrupt)
            print(f"{len(workers)} workers do {ITEMS} jobs")
            for number in range(ITEMS):
                await jobs.push(str(number).encode())  # waits while all workers are busy
                if number == ITEMS // 2:
                    workers[0].kill()
        # Leaving the block has waited for all acknowledgements, and has told the workers that no more jobs come.
        tasks.cancel_scope.cancel()
    print(f"{sum(done.values())} jobs of the killed worker were done by the others")
    print(f"{len(done)} of {ITEMS} jobs are done")
    for each in workers:
        each.join()


if __name__ == "__main__":
    anyio.run(main)
