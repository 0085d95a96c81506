"""libfabric's own fi_pingpong, which measures round trips of messages and prints a table.

Started and asked like worker.py, so it also honours the cores that it was given.
"""

import json
import os
import socket
import subprocess
import sys
import time

ITERATIONS = 10_000
CPU_UNKNOWN = float("nan")


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def one_way(provider: str, endpoint: str, size: str, server_core: set[int]) -> float:
    """Microseconds for half a round trip."""
    command = ["fi_pingpong", "-p", provider, "-e", endpoint, "-I", str(ITERATIONS), "-S", size]
    port = free_port()
    own_core = os.sched_getaffinity(0)
    os.sched_setaffinity(0, server_core)  # inherited, as in pair.py
    server = subprocess.Popen([*command, "-B", port], stdout=subprocess.DEVNULL)
    os.sched_setaffinity(0, own_core)
    while server.poll() is None:
        client = subprocess.run([*command, "-P", port, "127.0.0.1"], capture_output=True, text=True)
        if client.returncode == 0:
            server.wait()
            return float(client.stdout.splitlines()[-1].split()[6])
        time.sleep(0.01)  # it does not say when it listens
    raise SystemExit(f"fi_pingpong's server ended with {server.returncode}")


def client(provider: str, endpoint: str, server_pid: int) -> None:
    for line in sys.stdin:
        _, size, _, _ = line.split()
        took = 2e-6 * ITERATIONS * one_way(provider, endpoint, size, os.sched_getaffinity(server_pid))
        print(json.dumps({"count": ITERATIONS, "seconds": took, "cpu": CPU_UNKNOWN}), flush=True)


if __name__ == "__main__":
    provider, endpoint, side, *rest = sys.argv[1:]
    if side == "server":
        print(json.dumps(""), flush=True)
        sys.stdin.read()
    else:
        client(provider, endpoint, int(rest[1]))
