#!/usr/bin/env bash
# Makes .venv with aiofabric built in place, installing first what Debian packages lack for it.
# PYTHON=… chooses the interpreter; otherwise the first one that is 3.11 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# A pyenv shim answers to every version's name and may then refuse: only running it tells.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3}; do
        "$candidate" -c 'import sys; sys.version_info >= (3, 11) or sys.exit(1); print(sys.executable)' 2>/dev/null && return
    done
    die "no Python 3.11 or newer among: ${PYTHON:-python3, python3.11 ... python3.14, /usr/bin/python3}." \
        "Install one, or name it: make PYTHON=/path/to/python"
}

python=$(find_python)
config() { "$python" -c "import sysconfig; print(sysconfig.$1)"; }
version=$(config 'get_python_version()')
cc=${CC:-$(config 'get_config_var("CC")')}

# Each line: is it there? Otherwise Debian's packages for it.
required() {
    $cc -x c -fsyntax-only - <<<'#include <stdio.h>' 2>/dev/null || echo gcc libc6-dev
    [ -e "$(config 'get_path("include")')/Python.h" ] || echo "python$version-dev"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || echo "python$version-venv"
    command -v pkg-config >/dev/null || echo pkg-config
    pkg-config --exists 'libfabric >= 1.17' 2>/dev/null || echo libfabric-dev
}
wanted() { # by the tests alone, which skip what is not there
    command -v fi_pingpong >/dev/null || echo libfabric-bin
    command -v ip >/dev/null || echo iproute2 # hosts that vanish are network namespaces
    # CPython's own asyncio tests; Debian's interpreter has them in a package of its own.
    local stdlib; stdlib=$(config 'get_path("stdlib")')
    [ "$stdlib" != "/usr/lib/python$version" ] || [ -d "$stdlib/test/test_asyncio" ] || echo "libpython$version-testsuite"
}

install() {
    local root=()
    command -v apt-get >/dev/null || { echo 'this system has no apt-get'; return 1; }
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { echo 'you are not root and there is no sudo'; return 1; }
        root=(sudo)
    fi
    printf 'setup: installing Debian packages: %s\n' "$*" >&2
    local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=120)
    { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "$@"; } </dev/null >/dev/null ||
        { echo 'apt-get failed'; return 1; }
}

missing=$(required) extra=$(wanted)
if [ -n "$missing$extra" ]; then
    why=$(install $missing $extra) || [ -z "$missing" ] ||
        die "$why, so what is missing could not be installed. As root: apt-get install" $missing
    missing=$(required)
    [ -z "$missing" ] ||
        die "$python still lacks what these Debian packages bring:" $missing "- another one may not: make PYTHON=/usr/bin/python3"
fi

.venv/bin/python -c 'import sys, pip; sys.version_info >= (3, 11) or sys.exit(1)' 2>/dev/null ||
    "$python" -m venv --clear .venv
.venv/bin/python -m pip install --quiet --upgrade 'pip>=25.1' # 25.1 is the first that knows --group
# setuptools warns of every package that stands beside its pyproject.toml.
PYTHONWARNINGS='ignore:Editable installation' .venv/bin/python -m pip install --quiet --editable .
