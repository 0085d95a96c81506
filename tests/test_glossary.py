"""Our own words are few and in the glossary, and words for which the field has another one are not used any more."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
OWN_MOST = 10
OWN = re.compile(r"^\| (\w+) \|", re.MULTILINE)

# Renamed words, and the field's words. "Rendezvous" is reserved for the protocol of large messages.
RENAMED = {
    "trunk": "multiplexer",
    "hail": "address query",
    "bell": "doorbell",
    "lane": "submission queue",
    "parcel": "received buffer",
    "leftover": "undelivered message",
    "spill": "overflow area",
    "spilt": "overflow area",
    "volley": "batch",
    "stranger": "client, unknown peer",
    "borrow": "acquire",
    "companion": "attached queue",
    "settled": "finished",
    "vain": "empty",
    "whoever": "peer, client, task",
    "face": "interface, adapter",
    "home": "domain, owner; SubmissionCore.retire",
    "forsake": "abandon, hand over",
    "attic": "successor",
    "hear": "receive",
    "heard": "received",
    "unheard": "unread",
    "breath": "iteration",
    "breathe": "yield_to_loop",
    "breathless": "must_yield",
    "winded": "must_iterate",
    "ceded": "poll_refused_at",
    "respite": "postponements",
    "crowd": "others_woken",
    "hurried": "after_empty_wakeup",
    "fruitless": "empty_polls",
    "disquiet": "not_quiet",
    "anew": "again",
    "doze": "may_stop_polling",
    "deaf": "without_descriptor",
    "starved": "may_stay_readable",
    "bereave": "peer_lost",
    "straggler": "late message",
    "suspect": "candidate",
    "farewell": "end frame",
    "surrender": "detach",
    "misfit": "layout error",
    "unuse": "end_use",
    "relieve": "reclaim",
    "patience": "timeout",
    "drowsy": "idle",
}
# Identifiers of words that are right elsewhere: "lent" buffers are documented, and hints are "met".
RENAMED_NAMES = {
    "lend": "acquire",
    "_give_back": "_return_message",
    "put_back": "requeue",
    "_put_back": "_requeue",
    "look_for": "poll_for",
    "meet": "acquire_peer",
    "met": "linked",
    "LOOK_NS": "LONGEST_POLL_NS",
    "TURN": "YIELD_AFTER",
    "looks": "polls",
    "Link": "RpcTransport",
    "tell_end": "send_end",
    "at_rest_when_quiet": "sleeps_when_quiet",
}
# Words in names of classes and files that the field knows. A new word goes in here, or into the glossary.
FIELD_WORDS = ROOT / "tests" / "field_words.txt"
EXCEPTIONS = {("aiofabric/device_memory.py", "lane"), ("docs/howto/dask.md", "spill")}  # DLPack's, and a file of Dask's
KEPT = "# deprecated"  # beside names that programs may still use

FILES = [
    path
    for folder in ("aiofabric", "tests", "docs")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".pyi", ".md", ".c", ".h") and path != Path(__file__)
]
PROGRAMS = [path for path in FILES if path.suffix != ".md"]
C_COMMENT = re.compile(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)


def words(text: str) -> Iterator[str]:
    """The words of a text, in the singular, also those that names are made of."""
    for name in re.findall(r"[A-Za-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text)):
        yield name.lower()
        yield name.lower().removesuffix("s")


def renamed(path: Path, text: str) -> list[str]:
    """The lines that use a renamed word; in the tests, only names count."""
    where = path.relative_to(ROOT).as_posix() if path.is_absolute() else path.as_posix()
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if KEPT in line:
            continue
        old = set(words(line)) & RENAMED.keys()
        found += [f"{where}:{number}: {word}" for word in sorted(old) if (where, word) not in EXCEPTIONS]
    return found


def names(source: str) -> str:
    """The names in a program, each in its own line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join(token.string for token in tokens if token.type == tokenize.NAME)


def identifiers(path: Path) -> set[str]:
    """The identifiers of a program in Python or C."""
    text = path.read_text()
    if path.suffix in (".c", ".h"):
        return set(re.findall(r"\w+", C_COMMENT.sub("", text)))
    return set(names(text).split())


def test_the_glossary_is_short() -> None:
    own = OWN.findall((ROOT / "docs" / "glossary.md").read_text())[1:]
    assert 0 < len(own) <= OWN_MOST
    assert not set(own) & RENAMED.keys()


def words_of_names() -> set[str]:
    """The words in the names of classes and files."""
    found = set()
    for path in (ROOT / "aiofabric").rglob("*.py"):
        found |= {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)}
        found.add(path.stem)
    found |= {path.stem for path in (ROOT / "aiofabric" / "_core").rglob("*.c")}
    return {word.lower() for name in found for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def test_each_word_in_a_name_is_in_the_glossary_or_the_fields() -> None:
    field, own = set(FIELD_WORDS.read_text().split()), set(OWN.findall((ROOT / "docs" / "glossary.md").read_text())[1:])
    assert words_of_names() - field - own == set()
    assert field - words_of_names() == set(), "no name has these words any more"
    assert not field & (own | RENAMED.keys())


def test_renamed_words_are_not_used() -> None:
    found = []
    for path in FILES:
        text = path.read_text()
        found += renamed(path, names(text) if path.parts[len(ROOT.parts)] == "tests" and path.suffix == ".py" else text)
    assert found == []


def test_renamed_identifiers_are_not_used() -> None:
    found = [f"{path}: {name}" for path in PROGRAMS for name in sorted(identifiers(path) & RENAMED_NAMES.keys())]
    assert found == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("class TrunkPool:", "trunk"),
        ("self._spills = 1", "spill"),
        ("# the lanes of an endpoint", "lane"),
        ("def test_a_leftover_is_kept() -> None:", "leftover"),
    ],
)
def test_the_check_sees_what_it_is_for(line: str, word: str) -> None:
    assert renamed(Path("aiofabric/cq/queue.py"), line) == [f"aiofabric/cq/queue.py:1: {word}"]


def test_the_check_sees_identifiers_and_no_comments(tmp_path: Path) -> None:
    program = tmp_path / "fifo.c"
    program.write_text('/* it meets "lend" */ int lend(void) { return look_for("meet"); }')
    assert identifiers(program) & RENAMED_NAMES.keys() == {"lend", "look_for"}


@pytest.mark.parametrize("line", ["interface = surface()", "TRUNK = MULTIPLEXER  # deprecated", "a planet"])
def test_the_check_lets_pass_what_is_none(line: str) -> None:
    assert renamed(Path("aiofabric/cq/queue.py"), line) == []
