#!/usr/bin/env bash
# Runs connections and messages under valgrind's memcheck. A block that was allocated and that nothing points to
# any more ("definitely lost") is a leak. Needs valgrind (apt install valgrind).
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v valgrind > /dev/null; then
    echo "valgrind is not installed: apt install valgrind" >&2
    exit 1
fi
mkdir -p build
# Python's own allocator hides blocks from valgrind. What leaks.py counts in so few rounds is not meant.
PYTHONMALLOC=malloc valgrind --quiet --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
    --undef-value-errors=no --num-callers=30 --log-file=build/valgrind.log .venv/bin/python tools/leaks.py 20 > /dev/null || true
if grep -q "definitely lost" build/valgrind.log; then
    cat build/valgrind.log
    exit 1
fi
echo "valgrind: no block is definitely lost"
