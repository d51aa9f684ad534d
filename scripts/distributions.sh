# shellcheck shell=bash
# Sourced by check-versions and release, from the root of the checkout. Everything is made in a
# folder outside of it; the checkout is only read.

# new_environment FOLDER: a virtual environment of $PYTHON (python3 by default).
new_environment() {
    "${PYTHON:-python3}" -m venv "$1"
    "$1/bin/python" -m pip install --quiet --upgrade pip
}

# build_distributions FOLDER: FOLDER/dist gets the sdist, and the wheel that is built from it;
# FOLDER/tools the environment that built them. Takes what git has or would add, as it stands in
# the checkout, so that nothing left lying about gets in.
build_distributions() {
    mkdir -p "$1/source"
    git ls-files --cached --others --exclude-standard -z |
        tar --create --null --files-from=- --ignore-failed-read 2>/dev/null |
        tar --extract --directory "$1/source"
    new_environment "$1/tools"
    "$1/tools/bin/pip" install --quiet build twine
    "$1/tools/bin/python" -m build --outdir "$1/dist" "$1/source" >"$1/build.log" 2>&1 || {
        tail -n 30 "$1/build.log" >&2
        return 1
    }
    # A link to the tests of the checkout would make them import the checkout.
    mkdir -p "$1/outside"
    cp -R tests pyproject.toml "$1/outside/"
}
