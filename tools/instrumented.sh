#!/usr/bin/env bash
# Builds the tree in build/NAME, and runs pytest there; the interpreter is .venv's.
#   tools/instrumented.sh debug    [pytest's arguments]   assertions only
#   tools/instrumented.sh sanitize [pytest's arguments]   AddressSanitizer and UndefinedBehaviorSanitizer as well
#   tools/instrumented.sh fuzz     [pytest's arguments]   these without the assertions, which arbitrary calls violate
# Without arguments: the tests that pass through C most.
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:?debug, sanitize or fuzz}; shift
python=$PWD/.venv/bin/python
tree=$PWD/build/$kind
mkdir -p "$tree"
# What was renamed since must not stay; objects of the compiler may.
find "$tree" \( -name '*.py' -o -name '*.[ch]' \) -not -path "$tree/build/*" -delete
# A copy, so that no test or child imports the ordinary build by its working directory. Times are kept: only what
# changed is compiled again.
git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- --ignore-failed-read -cf - 2>/dev/null |
    tar -C "$tree" -xf -
cd "$tree"

[ "$kind" = fuzz ] || export AIOFABRIC_DEBUG_BUILD=1
if [ "$kind" != debug ]; then
    flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
    # Numbers that no clock shows overflow; the interpreter's own flags let them wrap.
    [ "$kind" != fuzz ] || flags="$flags -fwrapv"
    CFLAGS=$flags LDFLAGS=$flags "$python" setup.py -q build_ext --inplace
    cc=${CC:-gcc}
    # The interpreter is not instrumented: the runtime has to be there before it. Its leaks are not ours.
    export LD_PRELOAD; LD_PRELOAD="$($cc -print-file-name=libasan.so) $($cc -print-file-name=libubsan.so)"
    export ASAN_OPTIONS=detect_leaks=0:handle_segv=0:allocator_may_return_null=1:log_path="$tree/asan"
    export UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc
    rm -f "$tree"/asan.*
else
    "$python" setup.py -q build_ext --inplace
fi

if [ "$kind" = fuzz ]; then
    # Each test's limit grows with the examples.
    set -- tests/fuzz -o "faulthandler_timeout=$((700 + ${FUZZ_EXAMPLES:-100} / 10))" "$@"
elif [ $# -eq 0 ]; then
    set -- tests/cq tests/transport/{connected/test_connected_messages,connectionless/test_rdm,tagged/test_tagged}.py \
        tests/transport/messages tests/transport/test_random_cancels_lose_nothing.py \
        tests/streams/test_lengths.py tests/rpc/protocol tests/rpc/test_calls.py tests/rpc/test_tasks.py \
        tests/rpc/grpc/test_fast_paths.py tests/rpc/grpc/test_plans.py tests/rpc/grpc/test_handling.py -k "not uvloop" \
        --deselect tests/transport/messages/test_closed_endpoints_give_their_memory_back.py `# it keeps freed memory` \
        --deselect tests/rpc/protocol/test_assembly.py::test_a_size_that_cannot_be_is_refused # it reports such an allocation
fi
status=0
PYTHONPATH=$tree "$python" -m pytest -q -n 2 "$@" || status=$?
# A child's report is in a file; the test may have expected the child to end.
for report in "$tree"/asan.*; do
    [ -e "$report" ] || continue
    cat "$report"
    status=1
done
exit $status
