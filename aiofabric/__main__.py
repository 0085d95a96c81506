"""``python -m aiofabric``: the command line."""

import sys

if __name__ == "__main__":
    try:
        from aiofabric.cli import main
    except ImportError as error:  # aiofabric is not built, or a dependency is missing
        sys.exit(f"aiofabric: {error}")
    sys.exit(main())
