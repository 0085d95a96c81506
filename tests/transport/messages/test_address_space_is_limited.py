"""The overflow area takes as much address space as the process may map, and says which limit leaves none."""

import pytest

from tests.fixtures.children import run_in_child

pytestmark = pytest.mark.once

PROGRAM = """
    import resource, sys
    from pathlib import Path
    from aiofabric.transport.messages.overflow import behind

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if sys.argv[1]:
        resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]), resource.RLIM_INFINITY))
    try:
        area, length = behind()
        print(length == len(area), length)
    except MemoryError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("free", "words"),
    [
        ("", f"True {1 << 40}"),
        (str(20 << 30), f"True {1 << 34}"),
        (str(4 << 30), f"True {1 << 31}"),
        (str(1 << 30), f"True {1 << 28}"),
        (str(1 << 27), "cannot reserve address space for the overflow area of receives: raise RLIMIT_AS (ulimit -v)"),
    ],
    ids=["unlimited", "20 GiB", "4 GiB", "1 GiB", "128 MiB"],
)
def test_the_largest_area_that_may_be_mapped_is_taken(free: str, words: str) -> None:
    ended = run_in_child(PROGRAM, free)
    assert (ended.status, ended.out.strip()) == (0, words), ended.err
