#!/bin/bash
# Makes a Python environment in the folder ENV with the serving engine vLLM for CPUs, in the versions of
# engine-versions.txt, with Sluice's connector for it and with what make-model.py needs. About 6 GB, minutes;
# seconds if ENV has the engine already. Packages come from where pip is configured to get them.
#   deploy/vllm/install-engine.sh [--without-connector] ENV | --help
# --without-connector: the engine alone.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
versions=$here/engine-versions.txt
connector=$here/../../client/python

fail() {
  echo "install-engine: $*" >&2
  exit 1
}

with_connector=1
case "${1-}" in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  --without-connector)
    with_connector=0
    shift
    ;;
esac
if (($# != 1)) || [[ $1 == -* || -z $1 ]]; then
  echo "usage: $0 [--without-connector] ENV | --help" >&2
  exit 2
fi
env=$1
installed=$env/engine-versions.txt

# Says what goes wrong in one line; pip's own words stay above it.
pip_install() {
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-compile \
    --no-deps "$@" || fail "pip could not install into $env: is the package index in reach" \
    "('pip config list' shows which), and is there room on the disk? Run it again when it is"
}

python3 -c 'import ensurepip, venv' 2>/dev/null ||
  fail "python3 cannot make environments; run deploy/install-deps.sh --engine"
[[ ! -e $env || -d $env ]] || fail "$env is not a folder"
[[ -f $env/pyvenv.cfg || -z $(ls -A "$env" 2>/dev/null) ]] ||
  fail "$env holds something else; name an empty folder or an environment of this script"

# The copy of the list is written last: it says that all of it is there.
if ! cmp -s "$versions" "$installed"; then
  echo "install-engine: installing $(grep -c '==' "$versions") packages into $env (about 6 GB, minutes)"
  rm -f "$installed"
  python3 -m venv "$env"
  pip_install -r "$versions"
  cp "$versions" "$installed"
fi

if ((with_connector)); then pip_install --force-reinstall "$connector"; fi
echo "install-engine: done"
