"""The measures, and how answers become columns. Both are tables."""

from collections.abc import Callable
from dataclasses import dataclass

from .workloads import Sample

SIZES = tuple(4**power for power in range(3, 12))  # 64 B to 4 MiB
BULK = 1 << 18  # from here on a few messages in flight fill a socket


@dataclass(frozen=True)
class Measure:
    """One line to a client: a workload of workloads.py and its numbers."""

    workload: str
    size: int = 64  # bytes
    width: int = 1  # requests or messages in flight, or connections
    one_core: bool = False  # client and server share one
    length: float = 1.0  # in units of the run's `seconds`
    once: bool = False  # in the first round only: repetition would not make it truer
    repeat: int = 1  # within one round, each time on a new connection


MEASURES = {
    "idle": Measure("idle", width=1000, length=3, once=True),
    "rest": Measure("idle", width=1, length=3, once=True),
    "ping": Measure("ping"),
    "core": Measure("ping", one_core=True),
    "flight": Measure("ping", width=64),
    "fan100": Measure("fan", width=100),
    "fan1000": Measure("fan", width=1000, length=2),
    "rate": Measure("flood", width=64),
    # A stream of large messages finds one of several paces and keeps it (C: 3.4 to 9.8 GB/s): more samples.
    "bulk64k": Measure("flood", size=1 << 16, width=16, length=0.36, repeat=3),
    "bulk1m": Measure("flood", size=1 << 20, width=4, length=0.36, repeat=3),
    "items": Measure("items"),
    "up": Measure("up", size=1 << 20),
    "down": Measure("down", size=1 << 20),
    "beside": Measure("beside", length=3),
    "idle100": Measure("idle", width=100, length=10, once=True),
    "slow": Measure("slow", once=True),
    "mixed": Measure("mixed", length=3),
    **{f"ping/{size}": Measure("ping", size=size, length=0.25) for size in SIZES},
    **{f"flood/{size}": Measure("flood", size=size, width=4 if size >= BULK else 16, length=0.25) for size in SIZES},
}

SWEEP = tuple(name for name in MEASURES if "/" in name)
ONE = ("rest", "ping", "core", "flight", "rate", "bulk64k", "bulk1m", "slow")  # measures of one connection
FEW = (*ONE, "fan100")
CALLS = ("idle100", "ping", "core", "flight", "items", "up", "down", "beside")  # measures of calls
MANY = ("idle", *ONE[1:], "mixed", "fan100", "fan1000")  # 1000 connections take seconds to make


_UNITS = {0: "B", 10: "KiB", 20: "MiB"}


def human(size: int) -> str:
    """A size in bytes as text, such as 4 KiB."""
    shift = max(shift for shift in _UNITS if size >> shift)
    return f"{size >> shift} {_UNITS[shift]}"


@dataclass(frozen=True)
class Column:
    """A number of a table: its measures, its unit, and the row with which it is compared."""

    title: str
    unit: str
    measures: tuple[str, ...]  # the first that a row has
    value: Callable[[Sample, Measure], float]
    against: str = ""
    digits: int = 1
    theme: str = "Round trips"  # the title of its table


def microseconds(sample: Sample, _: Measure) -> float:
    return sample["seconds"] / sample["count"] * 1e6


def processor_microseconds(sample: Sample, _: Measure) -> float:
    return sample["cpu"] / sample["count"] * 1e6


def thousands_a_second(sample: Sample, _: Measure) -> float:
    return sample["count"] / sample["seconds"] / 1e3


def gigabytes_a_second(sample: Sample, measure: Measure) -> float:
    return sample["count"] * measure.size / sample["seconds"] / 1e9


def lateness(sample: Sample, _: Measure) -> float:
    return sample["late"] * 1e6


def client_load(sample: Sample, _: Measure) -> float:
    return sample["client_cpu"] / sample["seconds"] * 100


def load(sample: Sample, _: Measure) -> float:
    return sample["cpu"] / sample["seconds"] * 100


def wakeups_a_second(sample: Sample, _: Measure) -> float:
    return sample["wakeups"] / sample["seconds"]


def kib_per_connection(sample: Sample, _: Measure) -> float:
    return sample["rss"] / sample["count"] / 1024


SPIN, FD, STREAMS = "C, spinning", "C, on the fd", "uvloop streams"
GRPC = "grpc.aio on uvloop"
IDLE = ("idle", "idle100", "rest")
AT_A_TIME, ONE_WAY, CALLS_MADE, BESIDE = (
    "Many requests at a time",
    "One way",
    "Streams of calls",
    "Other tasks, and idle",
)

COLUMNS = {
    "round trip": Column("round trip", "us", ("ping",), microseconds, SPIN),
    "one core": Column("one core", "us", ("core",), microseconds, FD),
    "CPU": Column("its CPU", "us", ("core",), processor_microseconds, FD),
    "in flight": Column("64 in flight", "k/s", ("flight",), thousands_a_second, STREAMS, theme=AT_A_TIME),
    "fan100": Column("100 conns", "k/s", ("fan100",), thousands_a_second, STREAMS, theme=AT_A_TIME),
    "fan1000": Column("1000 conns", "k/s", ("fan1000",), thousands_a_second, STREAMS, theme=AT_A_TIME),
    "rate": Column("64 B one way", "k/s", ("rate",), thousands_a_second, SPIN, 0, theme=ONE_WAY),
    "64 KiB": Column("64 KiB", "GB/s", ("bulk64k",), gigabytes_a_second, SPIN, 2, theme=ONE_WAY),
    "1 MiB": Column("1 MiB", "GB/s", ("bulk1m",), gigabytes_a_second, SPIN, 2, theme=ONE_WAY),
    "items": Column("64 B items", "k/s", ("items",), thousands_a_second, GRPC, 0, theme=CALLS_MADE),
    "up": Column("1 MiB up", "us", ("up",), microseconds, GRPC, 0, theme=CALLS_MADE),
    "down": Column("1 MiB down", "us", ("down",), microseconds, GRPC, 0, theme=CALLS_MADE),
    "beside": Column("p99 beside 1 MiB", "us", ("beside",), lateness, GRPC, 0, theme=CALLS_MADE),
    "slow peer": Column("1 ms peer", "% CPU", ("slow",), client_load, theme=BESIDE),
    "others": Column("p99 beside", "us", ("mixed",), lateness, digits=0, theme=BESIDE),
    "idle CPU": Column("idle", "% CPU", IDLE, load, theme=BESIDE),
    "wake-ups": Column("wake-ups", "1/s", IDLE, wakeups_a_second, digits=0, theme=BESIDE),
    "memory": Column("a conn", "KiB", ("idle",), kib_per_connection, theme=BESIDE),
}
