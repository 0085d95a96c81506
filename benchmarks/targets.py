"""The targets of aiofabric's speed: ratios within one run, which are checked at the end of each run."""

from dataclasses import dataclass

from .results import Results

Cell = tuple[str, str]  # row, column


@dataclass(frozen=True)
class Target:
    """``cell`` against ``to``, or as it is where there is nothing to compare with."""

    cell: Cell
    bound: float
    to: Cell | None = None
    at_least: bool = False

    def measure(self, results: Results) -> float | None:
        return results.ratio(*self.cell, *self.to) if self.to else results.value(*self.cell)

    def met(self, figure: float) -> bool:
        return figure >= self.bound if self.at_least else figure <= self.bound

    def __str__(self) -> str:
        (row, column), to = self.cell, self.to
        text = f"{row}: {column} {'at least' if self.at_least else 'at most'} {self.bound:.4g}"
        if to is None:
            return text
        return f"{text} of {to[0]}" + (f": {to[1]}" if to[1] != column else "")


def faster(row: str, column: str, bound: float, than: str) -> Target:
    """Takes at most ``bound`` of the other row's time."""
    return Target((row, column), bound, (than, column))


def more(row: str, column: str, bound: float, than: str) -> Target:
    """Moves at least ``bound`` of what the other row moves."""
    return Target((row, column), bound, (than, column), at_least=True)


UVLOOP, ASYNCIO, TRIO = "aiofabric on uvloop", "aiofabric on asyncio", "aiofabric on trio"
FD, SHM = "aiofabric on uvloop, fd", "aiofabric over shm"
STREAM, PACKED, TRANSPORT = "FabricStream on uvloop", "MessageStream, packed", "aiofabric transport"

GRPC, RPC, RPC_BYTES = "grpc.aio on uvloop", "RPC, grpc interface", "RPC, grpc, asyncio"

TARGETS = (
    faster(UVLOOP, "round trip", 1.6, "C, spinning"),
    faster(UVLOOP, "round trip", 1 / 3.5, "uvloop Protocol"),
    faster(ASYNCIO, "round trip", 1.9, "C, spinning"),
    faster(ASYNCIO, "round trip", 1 / 3.5, "asyncio Protocol"),
    faster(TRIO, "round trip", 0.5, "trio"),
    faster(FD, "round trip", 1.2, "C, on the fd"),
    faster(FD, "one core", 1.4, "C, on the fd"),
    Target((SHM, "round trip"), 7),
    faster(SHM, "round trip", 0.3, "ucxx over shm"),
    more(UVLOOP, "rate", 0.75, "C, spinning"),
    more(UVLOOP, "in flight", 1.0, "uvloop streams"),
    more(PACKED, "in flight", 3.0, "uvloop streams"),
    more(UVLOOP, "fan100", 1.1, "uvloop streams"),
    more(UVLOOP, "fan100", 1.0, "uvloop Protocol"),
    Target((UVLOOP, "fan1000"), 0.8, (UVLOOP, "fan100"), at_least=True),
    more(UVLOOP, "1 MiB", 0.95, "C, spinning"),
    more(UVLOOP, "1 MiB", 1.2, "uvloop Protocol"),
    more(UVLOOP, "64 KiB", 0.9, "C, spinning"),
    more("aiofabric RMA write", "1 MiB", 0.95, "C, RMA write"),
    more("aiofabric RMA read", "1 MiB", 0.95, "C, RMA read"),
    more(SHM, "1 MiB", 0.8, "C over shm"),
    more(STREAM, "64 KiB", 1.0, "uvloop streams"),
    more(STREAM, "1 MiB", 1.0, "uvloop streams"),
    more(STREAM, "in flight", 1.2, "uvloop streams"),
    faster(STREAM, "round trip", 0.55, "uvloop streams"),
    faster(STREAM, "one core", 1.1, "uvloop streams"),
    faster(TRANSPORT, "round trip", 0.65, "uvloop Protocol"),
    more(TRANSPORT, "in flight", 1.0, "uvloop Protocol"),
    faster(UVLOOP, "one core", 1.15, FD),
    Target((UVLOOP, "slow peer"), 5),
    Target((UVLOOP, "others"), 1000),
    Target((ASYNCIO, "others"), 1000),
    Target((UVLOOP, "wake-ups"), 0),
    Target((UVLOOP, "memory"), 45),
    faster(FD, "CPU", 0.6, "asyncio streams"),
    faster(RPC, "round trip", 0.1, GRPC),
    faster(RPC, "CPU", 0.1, GRPC),
    more(RPC, "in flight", 10, GRPC),
    more(RPC, "items", 10, GRPC),
    faster(RPC_BYTES, "up", 1 / 3, "grpc.aio"),
    faster(RPC_BYTES, "down", 1 / 3, "grpc.aio"),
    Target((RPC_BYTES, "beside"), 1000),
    Target((RPC_BYTES, "wake-ups"), 0),
)
