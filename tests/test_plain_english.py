"""Promise: `make lint` sees sentences that are hard to read, and lets plain ones pass."""

import pytest

from tools.plain_english import PATTERNS, remarks

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    "text",
    [
        "Who connects is cut off.",
        "The queue is full, and whoever waits is told.",
        "What is sent in a batch leaves together.",
        "Connect anew.",
        "The loop hears of it.",
        "The caller shall close it.",
        "A peer that ends without a word.",
        "A poll in vain.",
        "An endpoint of ours.",
        "A message is sent " + "and sent " * 20 + "again.",
        "Nothing is lost. Who calls again\nwaits.",
    ],
)
def test_a_sentence_that_is_hard_to_read(text: str) -> None:
    assert [*remarks(text)]


@pytest.mark.parametrize(
    "text",
    [
        "The listener closes connections that send nothing within five seconds.",
        "What is a provider?",
        "Who closes the region? The program does.",
        "The caller that waits is woken.",
        "```\nwhoever\n```\nThe example ends here.",
        "`nobody` is a user name.",
        "# What it costs\n\nEach message costs 5 us.",
        "- One item of a list without a full stop\n" * 20,
    ],
)
def test_a_plain_sentence(text: str) -> None:
    assert [*remarks(text)] == []


def test_a_remark_names_its_line() -> None:
    assert [remark.line for remark in remarks("Plain.\n\nConnect anew.\n", 10)] == [12]


def test_each_rule_is_short() -> None:
    assert len(PATTERNS) <= 15
