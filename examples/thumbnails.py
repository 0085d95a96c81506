"""A thumbnail farm: a folder of images, worker processes that shrink them, and a folder of thumbnails.

`python examples/thumbnails.py`, or `aiofabric run thumbnails:farm --workers shrink=4` in this folder.
"""

import tempfile
from pathlib import Path
from typing import Any

import anyio
import numpy

from aiofabric.pipeline import Pipeline

FOLDER = Path(tempfile.gettempdir()) / "aiofabric-thumbnails"
HEAD = b"P5 1024 768 255\n"


def make_images(count: int = 40) -> None:
    """Grey images in the format PGM: a circle that moves. One is broken."""
    FOLDER.mkdir(exist_ok=True)
    y, x = numpy.mgrid[:768, :1024]
    for n in range(count):
        image = ((x - 20 * n) ** 2 + (y - 384) ** 2 < 200**2) * numpy.uint8(255)
        (FOLDER / f"{n:02}.pgm").write_bytes(HEAD + image.tobytes())
    (FOLDER / "broken.pgm").write_bytes(HEAD + b"too short")


def paths() -> list[Path]:
    return sorted(FOLDER.glob("*.pgm"))


def read(path: Path) -> tuple[str, Any]:
    head, data = path.read_bytes().split(b"\n", 1)
    width, height = map(int, head.split()[1:3])
    return path.stem, numpy.frombuffer(data, "u1").reshape(height, width)


def shrink(named: tuple[str, Any]) -> tuple[str, Any]:
    """The mean of each square of 8 x 8 pixels."""
    name, image = named
    squares = image.reshape(image.shape[0] // 8, 8, image.shape[1] // 8, 8)
    return name, squares.mean(axis=(1, 3)).astype("u1")


def write(named: tuple[str, Any]) -> None:
    name, image = named
    head = b"P5 %d %d 255\n" % image.shape[::-1]
    (FOLDER / f"{name}.thumbnail").write_bytes(head + image.tobytes())


images = Pipeline(paths).map(read, on_error="skip")
farm = images.map(shrink, workers=2, process=True).sink(write)

if __name__ == "__main__":
    make_images()
    print(farm.draw(), flush=True)
    totals = anyio.run(farm.run)
    made, skipped = totals.stages["write"].taken, totals.stages["read"].skipped
    print(f"{made} thumbnails in {FOLDER}, {skipped} image skipped")
