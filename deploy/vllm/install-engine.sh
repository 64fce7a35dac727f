#!/bin/bash
# Makes a Python environment in the folder ENV with the serving engine vLLM for CPUs, in the versions of
# engine-versions.txt, with Sluice's connector for it and with what make-model.py needs. About 6 GB, in
# minutes; in seconds if ENV has the engine already. Packages come from where pip is configured to look.
#   deploy/vllm/install-engine.sh [--without-connector] ENV | --help
# --without-connector: the engine alone.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
versions=$here/engine-versions.txt
root=$here/../..

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

pip_install() {
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-compile \
    --no-deps "$@"
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
  pip_install -r "$versions" ||
    fail "pip could not install into $env: is the package index in reach ('pip config list' shows" \
      "which), and is there room on the disk? Run it again when it is"
  cp "$versions" "$installed"
fi

# Built from a copy: a build leaves files beside the sources, and takes up those of earlier ones.
if ((with_connector)); then
  copy=$(mktemp -d -t sluice-connector.XXXXXX)
  trap 'rm -rf "$copy"' EXIT
  mkdir "$copy/client"
  cp -r "$root/proto" "$copy"
  cp -r "$root/client/python" "$copy/client"
  rm -rf "$copy/client/python/build"
  pip_install --force-reinstall --no-build-isolation "$copy/client/python" ||
    fail "pip could not build the connector; deploy/install-deps.sh --engine installs what it needs"
fi
echo "install-engine: done"
