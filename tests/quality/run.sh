#!/bin/bash
# Judges every level by a real model beside other codecs: tables, and a plot in the work folder.
#   tests/quality/run.sh [--build DIR] [--python PROGRAM] [--work DIR] [--quick] [--json]
#   tests/quality/run.sh --install VENV
# DIR of --build (default: build) has the program sluice; --work (default: quality in the build
# folder) keeps the caches, about 2 GB, for the next run; --quick takes few texts, --json prints
# JSON. --install installs what the bench needs: packages of Debian as root, and those of PyPI in
# the virtual environment VENV, for --python VENV/bin/python. Where something is missing there is
# nothing to judge with: a message, and exit code 0.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$here/../../build
python=python3
work=""
options=()
mapfile -t debian <"$here/packages.txt"

install() {
  local as_root=()
  ((EUID == 0)) || as_root=(sudo)
  "${as_root[@]}" apt-get install --yes --no-install-recommends "${debian[@]}"
  python3 -m venv "$1"
  "$1/bin/pip" install --requirement "$here/requirements.txt"
}

while (($# > 0)); do
  case $1 in
    --build | --python | --work | --install)
      (($# > 1)) || { echo "quality: $1 needs a value" >&2; exit 2; }
      ;;&
    --build) build=$2; shift ;;
    --python) python=$2; shift ;;
    --work) work=$2; shift ;;
    --install) install "$2"; exit ;;
    --quick | --json) options+=("$1") ;;
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "quality: unknown argument $1; see --help" >&2; exit 2 ;;
  esac
  shift
done

sluice=$build/client/cli/sluice
[[ -x $sluice ]] || { echo "quality: no program $sluice; build it first" >&2; exit 1; }

missing=()
for package in "${debian[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || state="absent"
  [[ $state == installed ]] || missing+=("$package")
done
while read -r package; do
  found="import importlib.util as util, sys; sys.exit(util.find_spec('${package//-/_}') is None)"
  "$python" -c "$found" || missing+=("$package of $python")
done <"$here/requirements.txt"
if ((${#missing[@]} > 0)); then
  printf "quality: skipped, there is no %s\n" "${missing[@]}"
  echo "quality: run.sh --install VENV installs all that it needs"
  exit 0
fi

levels=$build/tests/bench/levels_bench
[[ -x $levels ]] || levels=""
exec "$python" -B "$here/bench.py" --sluice "$sluice" --levels-bench "$levels" \
  --work "${work:-$build/quality}" "${options[@]}"
