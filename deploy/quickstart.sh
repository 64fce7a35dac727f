#!/bin/bash
# Shows Sluice at work: builds it, starts a server and a node daemon in a temporary folder, stores a real
# KV cache and loads it four times: over a fast link, over one so slow that the level must drop, over one
# so slow that chunks are recomputed, and from a server that is killed in mid-stream. Every block that is
# loaded is compared with the original. The last line is the verdict; the exit status is 0 if all is well.
#   deploy/quickstart.sh [--help]
set -euo pipefail

case "${1-}" in
  "") ;;
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  *)
    echo "usage: $0 [--help]" >&2
    exit 2
    ;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
cache=$root/tests/data/smollm2_512.safetensors
chunk_tokens=64
slo_ms=3000
killed_slo_ms=20000
start_limit_s=20

work=$(mktemp -d -t sluice-quickstart.XXXXXX)
started=$SECONDS
processes=()

finish() {
  local status=$?
  trap - EXIT
  trap '' INT TERM PIPE  # nobody may be reading any more; what was started is taken away first
  ((${#processes[@]} == 0)) || kill -KILL "${processes[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  local logs=""
  if ((status != 0)); then logs=$(tail -n 20 "$work"/*.log 2>/dev/null) || true; fi
  rm -rf "$work"
  if ((status != 0)); then
    printf '%s\nquickstart: FAIL\n' "$logs" 2>/dev/null || true
  fi
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM
trap 'exit 141' PIPE

step() { printf '\n== %s\n' "$*"; }

fail() {
  echo "quickstart: $*" >&2
  exit 1
}

# start NAME COMMAND...: in the background, output to NAME.log; its process id in $process.
start() {
  local name=$1
  shift
  "$@" >"$work/$name.log" 2>&1 &
  process=$!
  disown "$process"
  processes+=("$process")
}

# wait_for PROCESS WHAT COMMAND...: until the command succeeds.
wait_for() {
  local process=$1 what=$2 limit=$((SECONDS + start_limit_s))
  shift 2
  until "$@" 2>/dev/null; do
    kill -0 "$process" 2>/dev/null || fail "$what: the process has ended"
    ((SECONDS < limit)) || fail "$what: not within $start_limit_s s"
    sleep 0.05
  done
}

# link COMMAND: tells the throttled link what to do; prints its answer.
link() {
  exec 3<>"/dev/tcp/127.0.0.1/$control_port"
  echo "$1" >&3
  local answer
  read -r answer <&3
  exec 3>&-
  echo "$answer"
}

link_has_carried() {
  local words
  read -r -a words <<<"$(link stats)"
  ((words[3] >= $1))
}

# levels NAME: the levels of the loaded chunks in the table, one a line.
levels() { awk '$1 ~ /^[0-9]+$/ && $2 ~ /^([0-9]+|lossless)$/ { print $2 }' "$work/$1.table"; }

# fetch NAME STATUS ARGUMENTS...: loads the cache into NAME.out, prints the table and keeps it in
# NAME.table; the loaded blocks are compared with the original. Exit status 4: chunks to recompute.
fetch() {
  local name=$1 expected=" $2 " status=0
  shift 2
  sluice fetch --like "$cache" --chunk-tokens "$chunk_tokens" --check "$cache" "$@" \
    "$work/$name.out" >"$work/$name.table" || status=$?
  cat "$work/$name.table"
  [[ $expected == *" $status "* ]] || fail "$name: exit status $status instead of$expected"
}

# has NAME TEXT: does a line of the table say so?
has() { grep -q -i -- "$2" "$work/$1.table"; }

step "packages and build"
"$root/deploy/install-deps.sh" --build
[[ -x $build/client/cli/sluice ]] || echo "the first build takes about 5 to 10 minutes"
cmake -S "$root" -B "$build" -G Ninja >"$work/cmake.log"
cmake --build "$build" --target sluiced sluice-node sluice
PATH=$build/server:$build/client:$build/client/cli:$PATH

step "a server, a link that can be throttled, a node daemon"
start sluiced sluiced --data-dir "$work/data" --listen 127.0.0.1:0 --port-file "$work/port"
server_process=$process
wait_for "$process" "sluiced" test -s "$work/port"
read -r port <"$work/port"
start link python3 -B "$root/tests/tools/throttle.py" --target "127.0.0.1:$port" \
  --port-file "$work/link.port"
wait_for "$process" "the link" test -s "$work/link.port"
read -r link_port control_port <"$work/link.port"
start sluice-node sluice-node --server "127.0.0.1:$link_port" --socket "$work/node.sock"
wait_for "$process" "sluice-node" test -S "$work/node.sock"
direct=127.0.0.1:$port throttled=127.0.0.1:$link_port

step "put: 512 tokens of SmolLM2-135M-Instruct, in chunks of $chunk_tokens"
sluice put --server "$direct" --chunk-tokens "$chunk_tokens" "$cache"

step "1. a fast link, through the node daemon: the finest level"
echo "Levels: 0 (coarsest) .. 2 (finest); lossless is exact."
fetch fast 0 --node "$work/node.sock" --slo "$slo_ms"
[[ $(levels fast | sort -u | wc -l) == 1 ]] || fail "chunks have different levels"
finest=$(levels fast | head -n 1)
((finest > 0)) || fail "level $finest is not the finest"
bytes=$(link stats | cut -d ' ' -f 4)

step "2. a link that carries 60 % of the bytes in time: the level drops, every chunk is loaded"
link "rate $((bytes * 600 / slo_ms))" >/dev/null
fetch slow 0 --server "$throttled" --slo "$slo_ms"
dropped=$(levels slow | grep -c -v -x "$finest") || fail "no level dropped"

step "3. a link that carries 10 % of the bytes in time: chunks are recomputed"
link "rate $((bytes * 100 / slo_ms))" >/dev/null
fetch slower 4 --server "$throttled" --slo "$slo_ms" --recompute any
loaded=$(levels slower | wc -l)

step "4. the server is killed in mid-stream"
# As another tenant: the daemon's memory holds the chunks of the first load.
sluice put --server "$direct" --chunk-tokens "$chunk_tokens" --tenant other "$cache" >/dev/null
link "rate $((bytes * 1000 / killed_slo_ms))" >/dev/null
carried=$(link stats | cut -d ' ' -f 4)
fetch killed 4 --node "$work/node.sock" --tenant other --slo "$killed_slo_ms" &
fetch_process=$!
processes+=("$fetch_process")
before=$EPOCHREALTIME
wait_for "$fetch_process" "the load is in mid-stream" link_has_carried $((carried + bytes / 16))
kill -KILL "$server_process"
wait "$fetch_process" || fail "the load failed"
waited_ms=$(((${EPOCHREALTIME/./} - ${before/./}) / 1000))
has killed server_unavailable || fail "no chunk says that the server is unavailable"
((waited_ms < killed_slo_ms / 2)) || fail "the answer took $waited_ms ms"

echo
echo "quickstart: PASS fast: level $finest; slow: $dropped chunks coarser; slower: $loaded loaded;" \
  "killed: answer after $waited_ms ms; $((SECONDS - started)) s"
