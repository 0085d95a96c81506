"""docs/providers.md is the output of the generator, names the offers of this machine, and a sample of its cells is
still true.
"""

import json

import pytest

import aiofabric
from aiofabric import Caps, EndpointType, Mode
from tests.fixtures.libraries import libraries
from tests.matrix.checks import CHECKS
from tests.matrix.loops import LOOPS
from tests.matrix.page import MODES, PAGE, UNRUN, UNRUN_CAPS, UNRUN_MODES, text
from tests.matrix.probe import BROKEN, ask
from tests.matrix.record import RECORDED, offers

RUNS = json.loads(RECORDED.read_text())

# One of each kind: it works, it is not offered, it is refused, a cancel, a close.
SAMPLE = [
    ("tcp MSG", "asyncio", "messages"),
    ("tcp MSG", "uvloop", "fetching atomics"),
    ("tcp MSG", "trio", "closing with receives"),
    ("shm RDM", "asyncio", "wait descriptor"),
    ("shm RDM", "uvloop", "cancelled receive"),
]


@pytest.mark.once
def test_the_page_is_what_the_generator_writes() -> None:
    assert PAGE.read_text() == text(), "run python -m tests.matrix --page"


@pytest.mark.once
def test_every_check_of_every_offer_has_an_answer_on_every_loop() -> None:
    for run in RUNS.values():
        assert set(run["cells"]) <= set(run["modes"])
        for offer, cells in run["cells"].items():
            kind = EndpointType[offer.split()[1]]
            assert set(cells) == {check for check, (_, kinds) in CHECKS.items() if kind in kinds}
            for answers in cells.values():
                assert set(answers) == set(LOOPS)
                assert not any(answer.startswith(BROKEN) or not answer for answer in answers.values())


@pytest.mark.once
def test_the_tables_have_as_many_cells_as_their_heads() -> None:
    width = 0
    for line in PAGE.read_text().splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = line.replace("\\|", "").count("|")
        width = width or cells
        assert cells == width, line


def test_what_is_marked_as_shown_against_doubles_is_nobody_s_here() -> None:
    found = aiofabric.getinfo()
    assert found
    for info in found:
        assert not any(Mode[name] in info.mode for name in UNRUN_MODES)
        assert not any(Caps[name] in info.caps for name in UNRUN_CAPS)


@pytest.mark.once
def test_modes_that_nobody_asks_for_are_marked() -> None:
    page = PAGE.read_text()
    assert f"| FI_MR_RAW | {UNRUN} |" in page
    assert "| FI_MR_VIRT_ADDR | shm" in page
    assert all(f"| FI_MR_{name} |" in page for name in MODES)


def test_the_page_names_the_providers_of_this_library() -> None:
    version = str(aiofabric.library_version())
    if version not in RUNS:
        pytest.skip(f"the page was recorded on {', '.join(RUNS)}, this is {version}")
    (library,) = list(libraries().values())[:1]
    page = PAGE.read_text()
    for offer in offers(library)[1]:
        name, kind = offer.split()
        title = f"{name} ({EndpointType[kind]})"
        assert f"## {title}\n" in page if offer in RUNS[version]["cells"] else f"{title} of {version}" in page


@pytest.mark.parametrize(("offer", "loop", "check"), SAMPLE)
def test_a_cell_is_still_true(offer: str, loop: str, check: str) -> None:
    version = str(aiofabric.library_version())
    if version not in RUNS:
        pytest.skip(f"the page was recorded on {', '.join(RUNS)}, this is {version}")
    (library,) = list(libraries().values())[:1]
    provider, kind = offer.split()
    assert ask(library, provider, kind, loop, check) == RUNS[version]["cells"][offer][check][loop]
