"""Pictures of a graph: every stage and every way between two of them is in it."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from aiofabric.pipeline import Pipeline
from tests.pipeline.stages import functions as f

PIPELINE = (
    Pipeline(f.numbers)
    .map(f.add_one, workers=2, process=True)
    .route(f.letter, {"a<b": lambda p: p.map(f.uneven), "b": lambda p: p})
    .sink(print, name='say "it"')
)


def test_mermaid() -> None:
    assert PIPELINE.draw() == (
        "flowchart LR\n"
        '    s0["numbers<br/>source"]\n'
        '    s1["add_one<br/>map, 2 processes"]\n'
        '    s2["letter<br/>route"]\n'
        '    s3["uneven<br/>map"]\n'
        '    s4["say #quot;it#quot;<br/>sink"]\n'
        "    s0 --> s1\n"
        "    s1 --> s2\n"
        '    s2 -->|"a#lt;b"| s3\n'
        '    s2 -->|"b"| s4\n'
        "    s3 --> s4\n"
    )


@pytest.mark.anyio
async def test_svg_with_rates() -> None:
    pipeline = Pipeline(range(10)).map(f.add_one)
    totals = await pipeline.run()
    picture = ElementTree.fromstring(pipeline.draw("svg", totals=totals))
    texts = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if "/s" not in text] == ["source", "add_one", "map"]
    assert sum(text.startswith("10 (") for text in texts) == 2
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}rect"))) == 2
    assert "a&lt;b" in PIPELINE.draw("svg", processes=True)


@pytest.mark.parametrize("form", ["png", None])
def test_other_forms(form: Any) -> None:
    with pytest.raises(ValueError, match="'mermaid' or 'svg'"):
        PIPELINE.draw(form)
