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

script=quickstart
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cache=$root/tests/data/smollm2_512.safetensors
chunk_tokens=64
slo_ms=3000
killed_slo_ms=20000
started=$SECONDS

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

build_programs --build
start_services
direct=127.0.0.1:$port throttled=127.0.0.1:$link_port

step "put: 512 tokens of SmolLM2-135M-Instruct, in chunks of $chunk_tokens"
sluice put --server "$direct" --chunk-tokens "$chunk_tokens" "$cache"

step "1. a fast link, through the node daemon: the finest level"
echo "Levels: 0 (coarsest) .. 2 (finest); lossless is exact."
fetch fast 0 --node "$work/node.sock" --slo "$slo_ms"
[[ $(levels fast | sort -u | wc -l) == 1 ]] || fail "chunks have different levels"
finest=$(levels fast | head -n 1)
((finest > 0)) || fail "level $finest is not the finest"
bytes=$(link_bytes)

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
carried=$(link_bytes)
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
