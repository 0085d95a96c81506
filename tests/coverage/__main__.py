"""``python -m tests.coverage [1.17.json 2.5.json]`` writes docs/coverage.md.

Each file is what ``python -m pytest --record-calls=FILE`` wrote, on one generation of libfabric and named after
it; without them the recording that is committed is used.
"""

import sys
from pathlib import Path

from tests.coverage.page import PAGE, merge, text

if len(sys.argv) > 1:
    merge([Path(name) for name in sys.argv[1:]])
PAGE.write_text(text())
