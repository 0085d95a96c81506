#!/usr/bin/env bash
# The tests of connections, messages, memory, streams, RPC, pipelines and closes, on verbs and verbs;ofi_rxm:
# tools/test_rdma.sh [--quick] [pytest's arguments], or tools/test_rdma.sh --matrix OFFER...
#
# They run in virtual machines that have an RDMA device (rdma_vm.sh): one for each libfabric, both at once; on asyncio with
# one library, on trio with the other, because which loop runs does not depend on the library. Each value of a test's
# parameters runs with one of the two (tests/fixtures/combinations.py); the tests in tests/rdma run with both. --quick takes the
# part that stands in the gate, by values. --matrix asks the offers ("verbs MSG") and writes their tables into
# docs/providers.md. A host that cannot have such a machine skips them, and says so.
set -euo pipefail
cd "$(dirname "$0")/.."

machine() {  # its number, and the path of libfabric; empty: the system's
    [ -z "$2" ] || export AIOFABRIC_LIBFABRIC=$2 FI_PROVIDER_PATH=$(dirname "$2")/libfabric
    MACHINE=$1 LIMIT=${LIMIT:-2400} tools/rdma_vm.sh tools/test_rdma.sh "${@:3}"
}

if [ "${RDMA_HOST:-}" = "" ]; then
    libraries=("" $(.venv/bin/python -c 'from tests.fixtures.libraries import libraries; print(*filter(None, libraries().values()))'))
    [ "${1:-}" != --matrix ] || libraries=("") # it asks each library itself
    mkdir -p build/rdma
    processes=()
    set -m # each machine is a process group, which an interrupt ends
    trap 'for each in "${processes[@]}"; do kill -- "-$each" 2>/dev/null || true; done' EXIT
    for number in "${!libraries[@]}"; do
        machine "$number" "${libraries[$number]}" "$@" >"build/rdma/output.$number" 2>&1 &
        processes+=($!)
    done
    failed=0
    for number in "${!processes[@]}"; do
        status=0
        wait "${processes[$number]}" || status=$?
        cat "build/rdma/output.$number"
        if [ "$status" = 77 ]; then
            echo "SKIPPED: the tests on an RDMA device, because this host cannot emulate one"
        elif [ "$status" != 0 ]; then
            failed=1
        fi
    done
    if [ "${1:-}" = --matrix ] && [ "$failed" = 0 ] && [ "$status" = 0 ]; then
        cp build/rdma/0/results/recorded.json tests/matrix/
        .venv/bin/python -m tests.matrix --page
    fi
    exit "$failed"
fi

# rxm opens one queue for as many peers, and the device has small ones. 4,096 shared receives would take half a second to
# register, for each endpoint.
export FI_UNIVERSE_SIZE=64 FI_OFI_RXM_MSG_RX_SIZE=256
if [ "${1:-}" = --matrix ]; then
    .venv/bin/python -m tests.matrix "${@:2}"
    cp tests/matrix/recorded.json build/rdma/results/
    exit
fi

devices="tests/rdma"
memory="tests/transport/messages/test_empty_pieces.py tests/transport/rma/test_connected_rma.py
    tests/transport/tagged/test_tagged.py"
connections="tests/cm/test_connections.py tests/transport/test_connect.py
    tests/transport/opening/test_shared_contexts.py tests/transport/connected/test_connected_messages.py
    tests/transport/connected/test_connected_close.py
    tests/transport/connected/test_many_connections_at_once.py
    tests/transport/connected/test_nothing_is_lost_at_the_end.py
    tests/transport/connected/test_peer_killed_mid_transfer.py tests/transport/test_closed_meanwhile.py
    tests/transport/connectionless/test_rdm.py"
streams="tests/streams/test_byte.py tests/streams/test_message.py tests/rpc/test_calls.py"
pipelines="tests/pipeline/test_push_pull.py tests/pipeline/test_large_items.py"
storms="tests/streams/test_cancel.py tests/pipeline/test_storms.py"  # numbered, checksummed data
closes="tests/transport/closing/test_closing_under_work.py
    tests/transport/closing/test_connectionless_closing_under_work.py"

# Left out: promises of tcp that no device makes.
left_out="256 or 255 or has_a_limit_that_is_checked_first or param2"            # private data of 256 bytes
left_out="$left_out or localhost or ::1 or every_address_of_a_name"             # addresses without a device
left_out="$left_out or remote_data_beyond_the_providers or remote_data_has_64 or remote_data_comes"  # 64 bits of data
left_out="$left_out or truncated or larger_than"                                # a connection that goes on after that
left_out="$left_out or hundreds_of_mebibytes or above_the_limit"                # messages of more than 8 MiB; no RNR
left_out="$left_out or keys_of_their_own or is_not_that_of_another_region"      # keys that the program chooses
left_out="$left_out or (granted and not key)"                                   # libfabric's cache of registrations

failed=0
run() {  # which tests, and their files. A part ends if a test ends its process; the others still run.
    local begin=$SECONDS
    .venv/bin/python -m pytest -q -p no:xdist --color=no --tb=short -rfE -o console_output_style=classic \
        --combinations=values -o timeout=300 -k "(verbs or rdma) and ($1) and not ($left_out)" ${2} "${@:3}" || failed=1
    echo "$((SECONDS - begin)) s for" $2
}

# The whole should end within 30 minutes, and a process takes ten seconds to start there. The gate runs the quick part.
if [ "${1:-}" = --quick ]; then
    shift
    run asyncio "$devices $memory" -m "not long" "$@"
    exit $failed
fi
loop="not (uvloop or trio)"
[ -z "${AIOFABRIC_LIBFABRIC:-}" ] || loop="not (uvloop or asyncio)"
run "$loop" "$devices" --combinations=all "$@"
run "$loop" "$memory $connections" "$@"
run "$loop" "$streams" "$@"
run "$loop" "$pipelines $storms" "$@"
run "survive_ or buffer_error or (die_under_work and not connectionless)" "$closes" "$@"
exit $failed
