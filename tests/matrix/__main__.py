"""``python -m tests.matrix [OFFER ...]`` asks the providers here and writes docs/providers.md; it takes some minutes.

An OFFER is a provider and a type of endpoint, ``"tcp MSG"``; without any, all are asked. ``--page`` asks none and
writes the page from the last recorded answers.
"""

import sys

from tests.matrix.page import PAGE, text
from tests.matrix.record import record

if sys.argv[1:] != ["--page"]:
    record(sys.argv[1:])
PAGE.write_text(text())
