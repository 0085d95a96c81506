"""Record batches of many kinds, each as the batches of one stream."""

from __future__ import annotations

import pyarrow

Batches = list[pyarrow.RecordBatch]

NUMBERS = pyarrow.record_batch({"number": pyarrow.array(range(50_000)), "half": pyarrow.array([0.5, None] * 25_000)})
TEXTS = [None, "", "text", "a longer text", "ü"]


def _dictionaries() -> Batches:
    """A dictionary that grows by a delta, stays, and is replaced."""
    values = ["a", "b"], ["a", "b", "c"], ["a", "b", "c"], ["z"]
    columns = [pyarrow.DictionaryArray.from_arrays([0, len(each) - 1, None], each) for each in values]
    return [pyarrow.record_batch({"letter": column}) for column in columns]


def _nested() -> pyarrow.RecordBatch:
    inner = pyarrow.dictionary(pyarrow.int8(), pyarrow.string())
    structs: list[dict[str, object] | None] = [{"a": 1, "b": ["x", None]}, None, {"a": None, "b": []}]
    return pyarrow.record_batch(
        {
            "list": pyarrow.array([[1, 2], None, []]),
            "large": pyarrow.array([["x"], [], None], pyarrow.large_list(pyarrow.large_string())),
            "map": pyarrow.array([[("k", 1)], None, []], pyarrow.map_(pyarrow.string(), pyarrow.int32())),
            "struct": pyarrow.array(structs, pyarrow.struct({"a": pyarrow.int64(), "b": pyarrow.list_(inner)})),
            "fixed": pyarrow.array([[1, 2], [3, 4], None], pyarrow.list_(pyarrow.int16(), 2)),
            "runs": pyarrow.RunEndEncodedArray.from_arrays([2, 3], ["x", "y"]),
            "union": pyarrow.UnionArray.from_sparse(
                pyarrow.array([0, 1, 0], pyarrow.int8()), [pyarrow.array([1, 2, 3]), pyarrow.array(["a", "b", "c"])]
            ),
        }
    )


def _flat() -> pyarrow.RecordBatch:
    return pyarrow.record_batch(
        {
            "text": pyarrow.array(TEXTS * 1000),
            "long offsets": pyarrow.array(TEXTS * 1000, pyarrow.large_string()),
            "view": pyarrow.array(["text of a view, out of line", "short"] * 2500, pyarrow.string_view()),
            "bits": pyarrow.array([True, None, False, True, False] * 1000),
            "bytes": pyarrow.array([b"12345", None] * 2500, pyarrow.binary(5)),
            "nothing": pyarrow.nulls(5000),
            "small": pyarrow.array(range(5000), pyarrow.uint16()),
        }
    )


KINDS: dict[str, Batches] = {
    "numbers": [NUMBERS, NUMBERS],
    "sliced": [NUMBERS.slice(3, 40_001)],
    "sliced flat": [_flat().slice(1001, 999)],
    "sliced nested": [_nested().slice(1)],
    "flat": [_flat()],
    "nested": [_nested()],
    "many columns": [pyarrow.record_batch({f"column {each}": [each, None, -each] for each in range(100)})],
    "dictionaries": _dictionaries(),
    "no rows": [NUMBERS.slice(0, 0), NUMBERS.slice(5, 0)],
    "no columns": [pyarrow.record_batch([], schema=pyarrow.schema([]))],
    "one byte": [pyarrow.record_batch({"byte": pyarrow.array([1], pyarrow.int8())})],
    "wide": [pyarrow.record_batch({f"column {number}": pyarrow.array([number]) for number in range(500)})],
    "many large": [pyarrow.record_batch({f"{number}": pyarrow.array(range(3000)) for number in range(300)})],
}


def stored(batch: pyarrow.RecordBatch) -> list[pyarrow.Buffer]:
    """The buffers of a batch."""
    return [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]
