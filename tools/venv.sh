#!/bin/sh
# Make or repair .venv:  [PYTHON=python3.12] sh tools/venv.sh [extra ...]   (extra: dev by default)
#
# Silent and quick if everything is in place. A shell script, because it must speak even where Python is missing.
# .venv/made      the folder in which .venv was made; written last, so a .venv without it is half-made
# .venv/extra-*   check sum of the files that say what to install, one per installed extra
set -eu
cd "$(dirname "$0")/.."
size="two or three minutes and 1.9 GB"

say() { printf 'measureformer: %s\n' "$*" >&2; }
refuse() { say "$@"; exit 1; }

# version and path of an interpreter, two lines; the path is that of the base, since .venv itself may be on PATH
describe() {
    "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3]); print(getattr(sys, "_base_executable", sys.executable))' 2>/dev/null
}

usable() {
    [ -f .venv/made ] && [ "$(cat .venv/made)" = "$(pwd)" ] || return 1
    inside=$(describe .venv/bin/python | head -n 1) && [ -n "$inside" ] || return 1
    # a PYTHON that was asked for must be the one inside; the default one need not
    [ -z "${PYTHON:-}" ] || [ "$(describe "$PYTHON" | head -n 1)" = "$inside" ]
}

make_new() {
    asked=${PYTHON:-python3}
    about=$(describe "$asked") && [ -n "$about" ] ||
        refuse "cannot run '$asked'. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3"
    version=$(printf '%s\n' "$about" | head -n 1)
    base=$(printf '%s\n' "$about" | tail -n 1)
    minor=${version#*.}
    minor=${minor%%.*}
    [ "${version%%.*}" -gt 3 ] || { [ "${version%%.*}" -eq 3 ] && [ "$minor" -ge 11 ]; } ||
        refuse "'$asked' is Python $version; need 3.11 or newer. Name one: make PYTHON=/path/to/python3.11"
    [ ! -e .venv ] || say "the .venv here is half-made, moved, or of another Python; it is made again"
    say "setting up .venv with Python $version, once: $size"
    rm -rf .venv
    "$base" -m venv .venv ||
        refuse "'$base -m venv' failed. On Debian and Ubuntu: apt install python3-venv"
}

# of two `make` at a time the second waits
if command -v flock >/dev/null 2>&1; then
    exec 9<tools/venv.sh
    flock 9
fi

started=$(date +%s)
sum=$(cat pyproject.toml constraints.txt | cksum)
usable || make_new
missing=
for extra in "${@:-dev}"; do
    [ "$(cat ".venv/extra-$extra" 2>/dev/null)" = "$sum" ] || missing="$missing $extra"
done
[ -n "$missing" ] || exit 0

[ ! -f .venv/made ] || say "pyproject.toml, constraints.txt or the wanted extras changed; installing"
# until pip has finished, the folder counts as half-made
rm -f .venv/made
list=$(printf '%s' "${missing# }" | tr ' ' ',')
# -qq: a mirror's notices are not the user's business; errors are still shown
.venv/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[$list]" ||
    refuse "pip could not install; its message is above. Once the cause is gone, run the same command again"
for extra in $missing; do
    printf '%s\n' "$sum" >".venv/extra-$extra"
done
pwd >.venv/made
say "set up in $(($(date +%s) - started)) s"
