"""``python -m aiofabric``: the command line."""

import sys

from aiofabric.cli import main

if __name__ == "__main__":
    sys.exit(main())
