#!/bin/sh
# Make the virtual environment (once) and install coresift with extras into it (again only when
# pyproject.toml, constraints.txt or the place of this directory changed).
#
#   tools/setup.sh EXTRAS       such as cli,train,plots or dev; VENV and PYTHON may be set in the environment
#
# With HASHES=1, only files whose hashes are in locks/ are installed (docs/security.md).
set -eu

extra=${1:?usage: tools/setup.sh EXTRA}
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
case "$extra" in dev) lock=locks/dev.txt ;; *) lock=locks/demo.txt ;; esac
[ "${HASHES:-}" = 0 ] && HASHES=

say() { printf 'coresift: %s\n' "$*" >&2; }

is_usable() { # Python 3.11 or later, able to make environments
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        is_usable "$PYTHON" && { echo "$PYTHON"; return; }
        say "error: PYTHON=$PYTHON is not a Python 3.11 or later with venv"
        return 1
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python3.14 python; do
        if is_usable "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    say "error: no Python 3.11 or later with venv was found (python3 here: $(python3 --version 2>/dev/null || echo none))." \
        "Install one (Debian and Ubuntu: python3 and python3-venv), or say: make PYTHON=/path/to/python3"
    return 1
}

state() { # what an installation depends on; the path is part of it, as an editable install holds it
    { pwd; cat pyproject.toml constraints.txt; [ -z "${HASHES:-}" ] || cat locks/*.txt; } | cksum
}

is_installed() {
    for stamp in "$venv/.coresift-$extra" "$venv/.coresift-dev"; do # dev contains the others
        [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(state)" ] && return 0
    done
    return 1
}

install() {
    is_installed && return # another make did it while this one waited for the lock
    if ! "$venv/bin/python" -c '' >/dev/null 2>&1; then
        python=$(find_python) || exit 1
        say "making the environment $venv with $("$python" --version)"
        "$python" -m venv --clear "$venv"
    elif ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        say "error: $venv holds $("$venv/bin/python" --version), and 3.11 or later is needed; remove it or set VENV"
        exit 1
    fi
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip >/dev/null
    say "installing coresift[$extra] into $venv (the first time takes a minute or two)"
    if [ -n "${HASHES:-}" ]; then
        install_locked
    else
        # The build backend goes in first, pinned as well, so that the install needs no build environment of its own.
        pip_install -c constraints.txt hatchling editables
        pip_install -c constraints.txt --no-build-isolation -e ".[$extra]"
    fi
    state >"$venv/.coresift-$extra"
}

pip_install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

install_locked() { # the lock names every package that is needed, so pip adds none; wheels only, as builds run code
    if ! pip_install --require-hashes --no-deps --only-binary :all: --force-reinstall -r "$lock"; then
        say "error: pip found no file with a hash of $lock: either it was changed, or there is none for" \
            "$("$venv/bin/python" --version) on this system; docs/security.md (Dependencies) says what is covered"
        exit 1
    fi
    pip_install --no-deps --no-build-isolation -e .
}

is_installed && exit 0
# One installation at a time, where flock is there (util-linux); a file that is always present serves as the lock.
if command -v flock >/dev/null 2>&1; then
    exec 9<pyproject.toml
    flock 9
fi
install
