# shellcheck shell=bash
# Sourced by the other scripts. prepare_environment EXTRA... makes .venv in the checkout if there is
# none, and installs the project with those extras into it if that has not been done since
# pyproject.toml last changed. Nothing is kept outside the checkout but pip's own cache.

# A run starts hundreds of processes. What they import is compiled by the first of them, and by pip
# not at all: most of what it installs is never imported.
unset PYTHONDONTWRITEBYTECODE

_fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# The first Python that is new enough, or nothing. PYTHON=... decides it by hand.
_find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

_apt_install() {
    echo "installing from Debian: $*"
    [ -n "${_apt_updated:-}" ] || _root apt-get update -qq
    _apt_updated=yes
    _root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

_make_venv() {
    local python
    python=$(_find_python)
    [ -n "$python" ] || _fail "needs Python 3.11 or newer; set PYTHON to its path"
    # Debian ships Python without the modules that make virtual environments.
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        command -v apt-get >/dev/null || _fail "$python has no venv module, and there is no apt-get to install it"
        _apt_install "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    fi
    # A half-made environment of an interrupted run is made anew.
    "$python" -m venv --clear .venv
}

# Sets uv's settings to pip's, for _install. Fails if pip has one that is not known here.
_settings_of_pip() {
    local configured section key value
    configured=$(.venv/bin/python -m pip config list) || return
    # The first that is found holds, as for pip.
    for section in :env: install global; do
        while IFS='=' read -r key value; do
            value=${value:1:-1}
            # Several values are lines, which are shown as in Python.
            case ${key#"$section".} in
                index-url) export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX-$value} ;;
                extra-index-url) export UV_INDEX=${UV_INDEX-${value//'\n'/ }} ;;
                find-links)
                    value=${value//'\n'/,}
                    export UV_FIND_LINKS=${UV_FIND_LINKS-${value// /,}}
                    ;;
                cert) export SSL_CERT_FILE=${SSL_CERT_FILE-$value} ;;
                timeout | default-timeout) export UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT-$value} ;;
                cache-dir | config-file | disable-pip-version-check | no-cache-dir | no-input) ;;
                progress-bar | quiet | retries | root-user-action) ;;
                *) return 1 ;;
            esac
        done < <(grep "^$section\." <<<"$configured")
    done
}

# uv takes seconds where pip takes a minute. It is outside the environment, so that nothing there
# sees it. pip does it where uv cannot be had, or does not find what pip might.
_install() {
    { [ -x .venv/uv/bin/uv ] || .venv/bin/python -m pip install --quiet --no-compile --target .venv/uv uv; } \
        && (_settings_of_pip \
            && .venv/uv/bin/uv pip install --quiet --python .venv/bin/python --cache-dir .venv/uv/cache \
                --index-strategy unsafe-best-match --upgrade-package pip pip "$@") \
        && return
    echo "without uv"
    .venv/bin/python -m pip install --quiet --upgrade pip
    .venv/bin/python -m pip install --quiet --no-compile "$@"
}

prepare_environment() {
    local extras stamp
    extras=$(IFS=,; echo "$*")
    stamp=.venv/installed-$extras
    [ -e .venv/bin/pip ] || _make_venv
    if ! cmp -s pyproject.toml "$stamp"; then
        echo "installing pyspliter[$extras] into .venv"
        # setuptools warns of folders that bear a package's name (ours is the package itself), and
        # that folders of data could be imported (they are data).
        PYTHONWARNINGS="ignore:Editable installation,ignore:Package" _install --editable ".[$extras]"
        cp pyproject.toml "$stamp"
    fi
}

# Whether the Python of .venv is one that dataClay runs on.
python_suits_dataclay() {
    .venv/bin/python -c 'import sys; sys.exit(sys.version_info >= (3, 13))'
}

# An embedded dataClay needs a server of the Redis protocol. One may be there already, or have come
# with the Python packages; where it could not, Debian has one.
prepare_store() {
    local find='import sys; from spliter_backends._shared.redis_store import find_store; sys.exit(not find_store())'
    if python_suits_dataclay && ! .venv/bin/python -c "$find"; then
        command -v apt-get >/dev/null || _fail "dataClay needs a redis-server, and there is no apt-get to install it"
        _apt_install redis-server
    fi
}

# The tests of records start a PostgreSQL server of their own. Fails where it cannot be installed:
# these tests are skipped then.
prepare_postgres() {
    if compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then return; fi
    command -v apt-get >/dev/null || return 1
    _apt_install postgresql
}

# A page of the documentation cuts pictures of ImageMagick. Fails where it cannot be installed: its
# examples are skipped then.
prepare_imagemagick() {
    if .venv/bin/python -c 'import wand.image' 2>/dev/null; then return; fi
    command -v apt-get >/dev/null || return 1
    _apt_install imagemagick
}

# The tests of the SLURM part start a SLURM of their own. Fails where it cannot be installed: these
# tests are skipped then.
prepare_slurm() {
    # The same question that the tests ask.
    if .venv/bin/python -c 'import sys; from tests.slurm.cluster import why_not; sys.exit(bool(why_not()))' 2>/dev/null; then
        return
    fi
    command -v apt-get >/dev/null || return 1
    _apt_install slurm-wlm munge
}
