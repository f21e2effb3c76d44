#!/bin/sh
# Makes .venv hold what the named locks say, plus this checkout: requirements/install.sh LOCK...
#
# .venv/installed names what is in place, so that a second run has nothing to do. A changed lock, another Python, a
# moved checkout or an interrupted run starts a fresh .venv; a further lock (dev after all) is added to it.
set -eu

cd "$(dirname "$0")/.."
root=$(pwd -P)
stamp=.venv/installed
newline='
'

fail() {
    echo "fallow: $1" >&2
    exit 1
}

version_of() { # X.Y of a Python that fallow runs on; fails for any other
    "$1" -c 'import sys; v = sys.version_info[:2]; print("%d.%d" % v); sys.exit(not (3, 11) <= v < (3, 14))' 2>/dev/null
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null || fail "there is no $PYTHON here; name another with PYTHON=python3.12"
        version=$(version_of "$PYTHON") || fail "$PYTHON is Python ${version:-of unknown version} and fallow needs 3.11 to 3.13; name another with PYTHON=python3.12"
        return
    fi
    seen=
    for PYTHON in python3 python3.13 python3.12 python3.11; do
        version=$(version_of "$PYTHON") && return
        seen=${seen:-$version}
    done
    fail "python3 is ${seen:+Python $seen}${seen:-missing} and fallow needs 3.11 to 3.13; install one and name it with PYTHON=python3.12"
}

sum() {
    sha256sum "$1" | cut -d ' ' -f 1
}

line_of() { # what the stamp has to say about a lock
    echo "$1 $(sum "requirements/$1.txt")"
}

has() {
    case $newline$installed$newline in *"$newline$1$newline"*) return 0 ;; esac
    return 1
}

reason_to_start_afresh() {
    [ -d .venv ] || { echo "none yet" && return; }
    has incomplete && echo "its set-up was interrupted" && return
    .venv/bin/python -I -c 'import pip' 2>/dev/null || { echo "it is broken" && return; }
    grep -qF "$root/.venv" .venv/bin/activate 2>/dev/null || { echo "the checkout was moved" && return; }
    [ -n "$installed" ] || return 0 # made by hand: completed in place
    has "python $version" || { echo "it is not of Python $version" && return; }
    for lock in build all dev ziglang; do
        case $newline$installed in *"$newline$lock "*) has "$(line_of "$lock")" || { echo "requirements/$lock.txt has changed" && return; } ;; esac
    done
}

write_stamp() {
    printf '%s\n' "$1" >"$stamp.new"
    mv "$stamp.new" "$stamp"
}

pip() {
    .venv/bin/python -I -m pip install --quiet --disable-pip-version-check --no-input "$@"
}

find_python
# one set-up at a time: a second one waits here and then finds everything in place
exec 9<requirements/install.sh
if command -v flock >/dev/null; then flock 9; fi

installed=$(cat "$stamp" 2>/dev/null || true)
reason=$(reason_to_start_afresh)
if [ -n "$reason" ]; then
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || fail "$PYTHON has no venv module; on Debian and Ubuntu: apt-get install python3-venv"
    echo "Setting up .venv with Python $version ($reason)"
    rm -rf .venv
    mkdir .venv
    installed="python $version"
    write_stamp "$installed${newline}incomplete"
    "$PYTHON" -m venv .venv
fi
if [ -z "$installed" ]; then
    [ "$(version_of .venv/bin/python || true)" = "$version" ] || fail ".venv was made by hand with another Python than $PYTHON ($version); remove it or name its Python with PYTHON="
    installed="python $version"
fi

wanted=
for lock in build "$@"; do
    # dev holds all of both, at the same versions
    case $lock in build | all) if has "$(line_of dev)"; then continue; fi ;; esac
    has "$(line_of "$lock")" || wanted="$wanted $lock"
done
project="project $(sum pyproject.toml)"
if [ -z "$wanted" ] && has "$project" && .venv/bin/python -I -c 'import fallow' 2>/dev/null; then
    exit 0
fi

write_stamp "$installed${newline}incomplete"
for lock in $wanted; do
    echo "Installing $(grep -c '^[a-z]' "requirements/$lock.txt") packages from requirements/$lock.txt"
    pip --require-hashes --only-binary :all: -r "requirements/$lock.txt"
    installed="$installed$newline$(line_of "$lock")"
done
echo "Installing fallow from this checkout"
pip --no-build-isolation --no-deps --editable .
installed=$(printf '%s\n' "$installed" | grep -v '^project ')
write_stamp "$installed$newline$project"
