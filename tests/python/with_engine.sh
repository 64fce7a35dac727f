#!/bin/bash
# Runs a script with the interpreter of the environment ENV; exit code 77 (skipped) where there is none.
#   tests/python/with_engine.sh ENV SCRIPT [arguments]
set -euo pipefail

python=$1/bin/python
shift
if ! "$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("vllm"))' 2>/dev/null; then
  echo "with_engine: skipped, there is no environment with vLLM (deploy/vllm/install-engine.sh)"
  exit 77
fi
exec "$python" -B "$@"
