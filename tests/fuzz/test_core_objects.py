"""Hazard: an object of the native core that was made, but not initialised, or initialised twice, crashes."""

from typing import Any

import pytest

from aiofabric import _core
from aiofabric.cq.source.source import Source
from aiofabric.cq.submission import SubmissionQueue
from aiofabric.transport.messages.pool import Pool
from tests.fixtures.children import run_in_child

pytestmark = pytest.mark.once

PROGRAM = """
import gc
from contextlib import suppress
from aiofabric import _core

tried = 0
for kind in [each for each in vars(_core).values() if isinstance(each, type)]:
    try:
        made = kind.__new__(kind)
    except TypeError:
        continue
    for name in set(dir(made)) - set(dir(object)):
        with suppress(Exception):
            attribute = getattr(made, name)
            tried += 1
            for arguments in ((), (None,), (b"x",), (0,), (made,), (None, None), (0, 0), (b"x", 0), (made, made)):
                with suppress(Exception):
                    attribute(*arguments)
        with suppress(Exception):
            setattr(made, name, None)
    with suppress(Exception):
        repr(made), hash(made), iter(made)
    del made
    gc.collect()
print(tried > 50)
"""


def test_a_type_that_was_not_initialised_crashes_in_no_method() -> None:
    ended = run_in_child(PROGRAM)
    assert ended.out == "True\n", ended.err


def test_the_queue_of_an_initialised_object_is_not_replaced() -> None:
    queue = _core.NativeQueue(8, 8, False)
    with pytest.raises(RuntimeError, match="initialised once"):
        queue.__init__(16, 16, False)  # type: ignore[misc]


NEED_ARGUMENTS = [
    "NativeQueue",
    "Operation",
    "Polling",
    "PoolBuffer",
    "PoolCore",
    "SourceCore",
    "SubmissionCore",
    "Transfer",
    "Waker",
]


@pytest.mark.parametrize("kind", [*(getattr(_core, name) for name in NEED_ARGUMENTS), Source, Pool, SubmissionQueue])
def test_an_object_that_needs_arguments_is_not_made_without_its_initialisation(kind: Any) -> None:
    for arguments in ((), (1,), (1, 2, 3)):
        with pytest.raises(TypeError):
            kind.__new__(kind, *arguments)
        with pytest.raises(TypeError):
            object.__new__(kind, *arguments)
    with pytest.raises(TypeError):
        kind()
