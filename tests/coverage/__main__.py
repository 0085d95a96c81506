"""``python -m tests.coverage [1.17.json 2.5.json]`` writes docs/coverage.md.

Each file is what ``python -m pytest --record-calls=FILE`` wrote, on one generation of libfabric and named after
it; without them the recording that is committed is used.

``python -m tests.coverage ran`` first runs the tests of the statements that hold, on every libfabric here, and writes
down where they ran: those that have changed since then. ``ran all`` runs all of them, in two minutes; providers that a
fixture no longer has are gone after that.
"""

import sys
from pathlib import Path

from tests.coverage.page import PAGE, merge, text
from tests.coverage.ran import run

if sys.argv[1:2] == ["ran"]:
    run(again="all" in sys.argv[2:])
elif len(sys.argv) > 1:
    merge([Path(name) for name in sys.argv[1:]])
PAGE.write_text(text())
