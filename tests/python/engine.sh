#!/bin/bash
# Makes the environment ENV and the folder MODEL that tests with an engine need, if they are not there.
#   tests/python/engine.sh ENV MODEL
# Where that cannot be done here the exit code is 77, and the tests are skipped.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
env=$1 model=$2

skip() {
  echo "engine: skipped, $*"
  exit 77
}

if [[ ! -f $env/engine-versions.txt ]]; then
  [[ ! -x $env/bin/python ]] || exit 0  # somebody else's, taken as it is
  "$root/deploy/install-deps.sh" --engine || skip "not all packages could be installed"
fi
"$root/deploy/vllm/install-engine.sh" "$env" || skip "there is no environment with vLLM"
[[ -f $model/config.json ]] || "$env/bin/python" "$root/deploy/vllm/make-model.py" "$model" ||
  skip "there is no model"
