"""A thumbnail farm: a folder of images, worker processes that shrink them, and a folder of thumbnails.

`python examples/thumbnails.py`, or `aiofabric run thumbnails:farm --workers shrink=4` in this folder.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import numpy

from aiofabric.pipeline import Pipeline

FOLDER = Path(tempfile.gettempdir()) / "aiofabric-thumbnails"


def make_images(count: int = 40) -> None:
    """Grey images of 1024 x 768 in the format PGM: a circle that moves. One more is broken."""
    FOLDER.mkdir(exist_ok=True)
    y, x = numpy.mgrid[:768, :1024]
    for number in range(count):
        image = ((x - 20 * number) ** 2 + (y - 384) ** 2 < 200**2) * numpy.uint8(255)
        (FOLDER / f"{number:02}.pgm").write_bytes(b"P5 1024 768 255\n" + image.tobytes())
    (FOLDER / "broken.pgm").write_bytes(b"P5 1024 768 255\ntoo short")


def paths() -> list[Path]:
    return sorted(FOLDER.glob("*.pgm"))


def read(path: Path) -> tuple[str, Any]:
    head, data = path.read_bytes().split(b"\n", 1)
    width, height = map(int, head.split()[1:3])
    return path.stem, numpy.frombuffer(data, dtype="u1").reshape(height, width)


def shrink(named: tuple[str, Any]) -> tuple[str, Any]:
    """The mean of each square of 8 x 8 pixels."""
    name, image = named
    height, width = image.shape
    return name, image.reshape(height // 8, 8, width // 8, 8).mean(axis=(1, 3)).astype("u1")


def write(named: tuple[str, Any]) -> None:
    name, image = named
    (FOLDER / f"{name}.thumbnail").write_bytes(b"P5 %d %d 255\n" % image.shape[::-1] + image.tobytes())


farm = Pipeline(paths).map(read, on_error="skip").map(shrink, workers=2, process=True).sink(write)

if __name__ == "__main__":
    make_images()
    print(farm.draw(), flush=True)
    totals = anyio.run(farm.run)
    print(f"{totals.stages['write'].taken} thumbnails in {FOLDER}, {totals.stages['read'].skipped} image skipped")
    sys.exit(totals.stages["write"].taken != 40)
