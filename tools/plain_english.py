"""The countable part of plain English, as `make lint` holds it: ``python tools/plain_english.py [files]``.

Docs, docstrings, comments and messages are read. Each pattern below is a habit that made sentences hard to read for
engineers whose first language is another. CONTRIBUTING.md has the rules that no pattern can hold.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
WORDS_MOST = 40  # of a sentence
FOLDERS = (
    *("aiofabric", "docs", "examples", "tests", "benchmarks", "tools"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "setup.py"),
)
WITH_PATTERNS = ("tools/plain_english.py", "tests/test_plain_english.py")

PATTERNS = {
    "name the thing (peer, client, caller, task, program)": r"\b(whoever|nobody|somebody|everybody|anybody)\b",
    "a sentence about a person? Name the thing that acts": r"(?:^|[.;:] )Who (?!am|are you)(?![^.]*\?)",
    "begin with the thing, not with 'what'": r"(?:^|[.;] )What (?!is this|to )(?![^.]*\?)",
    "say 'again'": r"\banew\b",
    "say 'report', 'see' or 'learn'": r"\bhears? of\b",
    "say 'must' or 'will'": r"\bshall\b",
    "say 'for no reason', 'without effect'": r"\bin vain\b",
    "say 'also'": r"\bas well\.$",
    "say 'without a word' as 'without an orderly end'": r"\bwithout a word\b",
    "say 'in the middle of'": r"\bin the midst\b",
    "say 'always' or name the limit": r"\bas ever\b",
    "say 'if it is there'": r"\bbe it\b",
    "say 'ours', 'its own' only of a thing that was named": r"\b(of ours|of theirs|of one's own)\b",
}
_RULES = {rule: re.compile(pattern, re.MULTILINE) for rule, pattern in PATTERNS.items()}

_CODE = re.compile(
    r"^=[= ]+$.*?\n=[= ]+$.*?\n=[= ]+$|```.*?```|~~~.*?~~~|^(?: {4}|\t|>>> |\| ).*?$|`[^`]*`|<!--.*?-->",
    re.DOTALL | re.MULTILINE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n\s*(?=[-*] )|\n#+ .*\n")


class Remark(NamedTuple):
    """One place that is hard to read."""

    line: int
    rule: str
    text: str


def remarks(text: str, first_line: int = 1) -> Iterator[Remark]:
    """All remarks on a text."""
    plain = _CODE.sub(lambda code: "x" + "\n" * code[0].count("\n") if "\n" in code[0] else "x", text)
    for rule, pattern in _RULES.items():
        for found in pattern.finditer(re.sub(r"(?<=[^\n])\n(?=[^\n])", " ", plain)):
            line = first_line + plain.count("\n", 0, found.start())
            yield Remark(line, rule, found[0].strip(" .;:"))
    place = 0
    for sentence in _SENTENCE.split(plain):
        place = plain.find(sentence, place)
        if len(sentence.split()) > WORDS_MOST and " = " not in sentence:  # else it is a program
            line = first_line + plain.count("\n", 0, place)
            yield Remark(line, f"{len(sentence.split())} words: cut it in two", " ".join(sentence.split()[:6]))


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The prose of a file: line and text."""
    source = path.read_text()
    if path.suffix in (".c", ".h"):
        for block in re.finditer(r"/\*.*?\*/", source, re.DOTALL):
            yield (
                source.count("\n", 0, block.start()) + 1,
                re.sub(r"^[ \t]*(/\*|\*/|\*) ?|\*/$", "", block[0], flags=re.MULTILINE),
            )
        return
    if path.suffix != ".py":
        yield 1, source
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    comment, start = "", 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            start = start or token.start[0]
            comment += token.string.lstrip("#: ") + "\n"
        elif token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT) and comment:
            yield start, comment
            comment, start = "", 0


def main(arguments: list[str]) -> int:
    listed = subprocess.run(["git", "ls-files", *(arguments or FOLDERS)], cwd=ROOT, capture_output=True, text=True)
    count = 0
    for name in listed.stdout.split():
        path = ROOT / name
        left_out = name == "docs/coverage.md" or name in WITH_PATTERNS
        if path.suffix in (".py", ".md", ".c", ".h") and path.exists() and not left_out:
            for first, text in texts(path):
                for remark in remarks(text, first):
                    count += 1
                    print(f"{name}:{remark.line}: {remark.rule}: {remark.text!r}")
    return bool(count)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
