"""The sizes to measure, and the lines of results in fi_pingpong's columns."""

from __future__ import annotations

from itertools import takewhile

__all__ = ["LARGEST", "HEADER", "line", "sizes"]

LARGEST = 3 << 21  # bytes: 6 MiB
_USUAL = (64, 256, 1024, 4096, 65536, 1048576)
_ALL = (0, 1, *(size for power in range(1, 32) for size in (1 << power, 3 << power - 1)))

_COLUMNS = {
    "bytes": "<8",
    "#sent": "<8",
    "#ack": "<9",
    "total": "<8",
    "time": ">9",
    "MB/sec": ">11",
    "usec/xfer": ">13",
    "Mxfers/sec": ">13",
}
HEADER = "".join(f"{name:{width}}" for name, width in _COLUMNS.items())


def sizes(wanted: int | str | None, largest: int) -> list[int]:
    """Bytes of the messages to measure: one size, ``"all"``, or the usual ones; none above ``largest``."""
    if isinstance(wanted, int):
        return [wanted] if wanted <= largest else []
    return list(takewhile(lambda size: size <= largest, _ALL if wanted == "all" else _USUAL))


def line(size: int, sent: int, acknowledged: int, seconds: float) -> str:
    """One line of the table: ``sent`` messages each way, ``acknowledged`` of them by the other side's count."""
    transfers = 2 * sent
    total = transfers * size
    seconds = max(seconds, 1e-9)
    missing = sent - acknowledged
    acks = f"{'+' if missing > 0 else '-'}{_count(abs(missing))}" if missing else f"={_count(acknowledged)}"
    microseconds = seconds * 1e6 / transfers
    values = (
        _bytes(size),
        _count(sent),
        acks,
        _bytes(total),
        f"{seconds:.2f}s",
        f"{total / seconds / 1e6:.2f}",
        f"{microseconds:.2f}",
        f"{1 / microseconds:.2f}",
    )
    return "".join(f"{value:{width}}" for value, width in zip(values, _COLUMNS.values(), strict=True))


def _bytes(number: int) -> str:
    for letter, unit in (("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)):
        if number >= unit:
            whole, tenths = number // unit, number % unit * 10 // unit
            return f"{whole}.{tenths}{letter}" if whole < 10 and tenths else f"{whole}{letter}"
    return str(number)


def _count(number: int) -> str:
    for letter, unit in (("b", 10**9), ("m", 10**6), ("k", 1000)):
        if number >= unit:
            return f"{number // unit}{letter}"
    return str(number)
