# Sourced by scripts/demo and scripts/test: a virtual environment, llmc in it, and an engine in the cache.
# shellcheck shell=bash

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=$root/.venv
python=$venv/bin/python

# Without a terminal, progress bars would be silent; plain lines show that something happens.
[ -t 2 ] || export LLMC_PROGRESS="${LLMC_PROGRESS:-plain}"
# pip inside a virtual environment refuses to install for the user.
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
unset PYTHONHOME PYTHONPATH

say() { printf '== %s\n' "$*" >&2; }

die() {
    printf 'error: %s\nfix:   %s\n' "$1" "$2" >&2
    exit 2
}

# Print the first Python on PATH that is new enough.
find_python() {
    local name found names=(python3 python3.13 python3.12 python3.11 python3.10 python)
    [ -z "${PYTHON:-}" ] || names=("$PYTHON")
    for name in "${names[@]}"; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    found=$("${names[0]}" --version 2>/dev/null | head -n 1) || found=missing
    die "no Python 3.10 or newer (${names[0]} is ${found:-missing})" \
        "install one, or name it: PYTHON=/path/to/python3 $0"
}

# setup_venv EXTRAS: make .venv where it is missing or broken, and install llmc with these extras into it.
setup_venv() {
    local extras=$1 stamp wanted base
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        base=$(find_python)
        say "making $venv with $base"
        rm -rf "$venv"
        if ! "$base" -m venv "$venv"; then
            rm -rf "$venv"
            die "$base cannot make a virtual environment" "install its venv module (Debian: apt install python3-venv)"
        fi
    fi
    stamp=$venv/.llmc-installed-$extras
    # The path is part of it: an editable install points at the folder it was made in.
    wanted=$(printf '%s\n' "$root" && cat pyproject.toml)
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        say "installing llmc and what it needs${extras:+ ($extras)}"
        "$python" -m pip install --progress-bar off --editable ".${extras:+[$extras]}" >&2 ||
            die "pip could not install llmc" "check the network and \`pip config list\`, then run $0 again"
        printf '%s\n' "$wanted" >"$stamp"
    fi
}

# The engine stays in the cache: only the first run on a machine builds it.
setup_engine() {
    say "engine"
    "$python" -m llmc engine install "$@"
}
