#!/bin/bash
# Shows an engine that uses Sluice: builds it, installs vLLM for CPUs and a small model, starts a server, a
# node daemon and the engine. The engine computes and stores a long prompt. Then it is asked again, without
# what it remembers itself: over a fast link to the server, over one so slow that the level must drop, and
# from a server that is killed while it sends. Shown are the times to the first token, computed and loaded,
# and the answers. The last line is the verdict; the exit status is 0 if all is well.
#   deploy/vllm/demo.sh [--help | FOLDER]
# FOLDER keeps the engine's environment and the model (6.3 GB; default: build/engine). The first run fills
# it in minutes; where pip is configured to get packages must be in reach.
set -euo pipefail

case "${1-}" in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  -*)
    echo "usage: $0 [--help | FOLDER]" >&2
    exit 2
    ;;
esac

script=demo
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
here=$root/deploy/vllm
folder=${1:-$build/engine}
document=$root/README.md
question="What is a chunk?"
chunk_tokens=256
slo_ms=2000
started=$SECONDS

declare -A computed_ms loaded_ms loaded levels received_kb answers  # of each run, by its name

# The engine kills its workers, and their block pools stay until another engine starts.
at_end() {
  local pool
  for pool in /dev/shm/sluice-engine-py-*; do
    [[ ! -O $pool ]] || flock --nonblock "$pool" rm -f "$pool" || true  # live engines hold the lock
  done
}

start_engine() {
  step "the engine starts: a minute or two"
  local connector
  connector=$(printf '%s' '{"kv_connector": "SluiceConnector", "kv_role": "kv_both",' \
    '"kv_connector_module_path": "sluice_kv.vllm", "kv_load_failure_policy": "recompute",' \
    '"kv_connector_extra_config": {"socket": "'"$work/node.sock"'", "slo_ms": '"$slo_ms"',' \
    '"lookup_ms": 1000, "chunk_tokens": '"$chunk_tokens"'}}')
  # What it would leave elsewhere goes into $work; its development mode is for forgetting prompts.
  start engine env -C "$work" TMPDIR="$work" XDG_CACHE_HOME="$work" XDG_CONFIG_HOME="$work" \
    VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 \
    "$folder/env/bin/python" -m vllm.entrypoints.openai.api_server --model "$folder/model" \
    --uds "$work/api.sock" --dtype bfloat16 --enforce-eager --max-model-len 8192 --max-num-seqs 4 \
    --gpu-memory-utilization 0.25 --kv-transfer-config "$connector"
  engine_process=$process
  start_limit_s=300 wait_for "$process" "the engine" \
    grep -q "Application startup complete" "$work/engine.log"
  ask "Hello" >/dev/null  # its first answer is slower than others
}

ask() { python3 -B "$here/ask.py" "$work/api.sock" "$@" || fail "the engine does not answer"; }

# ask_long NAME: about the document, whose cache is NAME's alone. The time to the first token is in $ms,
# the tokens of the prompt in $tokens, the answer in $text.
ask_long() {
  local answer
  answer=$(ask --document "$document" --salt "$1" "$question")
  read -r ms tokens text <<<"$answer"
  echo "first token after $ms ms: $text"
}

stored_chunks() { sluice stats --server "127.0.0.1:$port" | awk '$1 == "stored" { print $2 }'; }

has_stored() { (($(stored_chunks) >= $1)); }

# compute NAME: the engine computes the document. In the end all its chunks are stored, and the engine
# does not remember them.
compute() {
  echo "computed and stored ($1):"
  local before
  before=$(stored_chunks)
  ask_long "$1"
  computed_ms[$1]=$ms
  wait_for "$engine_process" "the chunks of $tokens tokens are stored" \
    has_stored $((before + tokens / chunk_tokens))
  python3 -B "$here/ask.py" --forget "$work/api.sock"
}

# load NAME: asks again, and reads in the daemon's log what was loaded at which levels.
load() {
  echo "loaded ($1):"
  local logged carried
  logged=$(wc -l <"$work/sluice-node.log")
  carried=$(link_bytes)
  ask_long "$1"
  loaded_ms[$1]=$ms answers[$1]=$text received_kb[$1]=$((($(link_bytes) - carried) / 1000))
  read -r "loaded[$1]" "levels[$1]" < <(tail -n "+$((logged + 1))" "$work/sluice-node.log" |
    awk '/ event=chunk .* reason=none / {
      ++loaded
      match($0, /level=[0-9]+/)
      level = substr($0, RSTART + 6, RLENGTH - 6)
      if (!seen[level]++) levels = levels (levels == "" ? "" : ",") level
    }
    END { print loaded + 0, levels == "" ? "-" : levels }')
  echo "${loaded[$1]} of $((tokens / chunk_tokens)) chunks, levels: ${levels[$1]}, ${received_kb[$1]} kB"
}

# kill_server BYTES: as soon as the link has carried so many.
kill_server() {
  wait_for "$server_process" "the load is in mid-stream" link_has_carried "$1"
  kill -KILL "$server_process"
}

build_programs --engine

step "the engine's environment and its model, in $folder"
"$here/install-engine.sh" "$folder/env"
"$folder/env/bin/python" -B "$here/make-model.py" "$folder/model"

# Tells of every chunk, and keeps nothing.
printf '[node]\nprofile_cache_dir = ""\nprefill_file = ""\n[log]\nlevel = "debug"\n' >"$work/node.toml"
node_flags=(--config "$work/node.toml")
start_services
start_engine

step "1. a fast link"
compute fast
load fast

step "2. a link that carries 60 % of the bytes within $slo_ms ms"
compute slow
link "rate $((received_kb[fast] * 600000 / slo_ms))" >/dev/null
load slow
link "rate 0" >/dev/null

step "3. a link that carries 20 %, and the server is killed while it sends"
compute killed
link "rate $((received_kb[fast] * 200000 / slo_ms))" >/dev/null
kill_server $(($(link_bytes) + received_kb[fast] * 1000 / 32)) &
killer=$!
load killed
wait "$killer" || fail "the load was over before the server was killed"

printf '\n%-7s %10s %10s  %-6s  %-6s %9s  %s\n' link computed loaded chunks levels received answer
for run in fast slow killed; do
  printf '%-7s %7d ms %7d ms  %-6s  %-6s %6d kB  %s\n' "$run" "${computed_ms[$run]}" \
    "${loaded_ms[$run]}" "${loaded[$run]}/$((tokens / chunk_tokens))" "${levels[$run]}" \
    "${received_kb[$run]}" "${answers[$run]}"
done

((loaded[fast] == tokens / chunk_tokens)) || fail "not all chunks were loaded over the fast link"
((loaded_ms[fast] < computed_ms[fast])) || fail "loading over the fast link was not faster than computing"
((loaded[slow] > 0)) || fail "nothing was loaded over the slow link"
((received_kb[slow] < received_kb[fast])) || fail "the slow link carried as much as the fast one"
((loaded_ms[killed] < computed_ms[killed] + slo_ms)) || fail "the answer without a server took too long"
echo
echo "demo: PASS $tokens tokens; fast: ${loaded_ms[fast]} ms instead of ${computed_ms[fast]} ms;" \
  "$((SECONDS - started)) s"
