# shellcheck shell=bash
# What the scripts share that show Sluice at work: each sets `script` to its name and sources this file.
# It makes the temporary folder $work. When the script ends, however it does, what it started is ended and
# the folder removed; if its exit status is not 0, the ends of the logs and the verdict are shown.
# shellcheck disable=SC2154,SC2034  # script; what is for the scripts
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
start_limit_s=20
stop_limit_s=10

work=$(mktemp -d -t "sluice-$script.XXXXXX")
processes=()
node_flags=()

# Asks what was started to end, which ends its children; makes them all.
end_processes() {
  ((${#processes[@]} > 0)) || return 0
  local all=("${processes[@]}" "${processes[@]/#/-}") limit=$((SECONDS + stop_limit_s))
  kill -TERM "${processes[@]}" 2>/dev/null || true
  while kill -0 -- "${all[@]}" 2>/dev/null && ((SECONDS < limit)); do sleep 0.05; done
  kill -KILL -- "${all[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
}

# What else a script takes away after that.
at_end() { :; }

finish() {
  local status=$?
  trap - EXIT
  trap '' INT TERM PIPE  # nobody may be reading any more; what was started is taken away first
  end_processes
  at_end
  local logs=""
  if ((status != 0)); then logs=$(tail -n 20 "$work"/*.log 2>/dev/null) || true; fi
  rm -rf "$work"
  if ((status != 0)); then
    printf '%s\n%s: FAIL\n' "$logs" "$script" 2>/dev/null || true
  fi
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM
trap 'exit 141' PIPE

step() { printf '\n== %s\n' "$*"; }

fail() {
  echo "$script: $*" >&2
  exit 1
}

# start NAME COMMAND...: in the background, in a process group of its own, output to NAME.log; its
# process id in $process.
start() {
  local log=$work/$1.log
  shift
  setsid "$@" >"$log" 2>&1 &
  process=$!
  disown "$process"
  processes+=("$process")
}

# wait_for PROCESS WHAT COMMAND...: until the command succeeds, at most $start_limit_s.
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

# The bytes that the link has carried from the server.
link_bytes() {
  local words
  read -r -a words <<<"$(link stats)"
  echo "${words[3]}"
}

link_has_carried() { (($(link_bytes) >= $1)); }

# build_programs KIND: installs the packages of that kind, builds, puts the programs on the PATH.
build_programs() {
  step "packages and build"
  "$root/deploy/install-deps.sh" "$1"
  [[ -x $build/client/cli/sluice ]] || echo "the first build takes about 5 to 10 minutes"
  cmake -S "$root" -B "$build" -G Ninja >"$work/cmake.log"
  cmake --build "$build" --target sluiced sluice-node sluice
  PATH=$build/server:$build/client:$build/client/cli:$PATH
}

# The server is at 127.0.0.1:$port, its process id in $server_process; a link to it is at port $link_port;
# the daemon, with $node_flags, uses the link and is at $work/node.sock.
start_services() {
  step "a server, a link that can be throttled, a node daemon"
  start sluiced sluiced --data-dir "$work/data" --listen 127.0.0.1:0 --port-file "$work/port"
  server_process=$process
  wait_for "$process" "sluiced" test -s "$work/port"
  read -r port <"$work/port"
  start link python3 -B "$root/tests/tools/throttle.py" --target "127.0.0.1:$port" \
    --port-file "$work/link.port"
  wait_for "$process" "the link" test -s "$work/link.port"
  read -r link_port control_port <"$work/link.port"
  start sluice-node sluice-node "${node_flags[@]}" --server "127.0.0.1:$link_port" --socket "$work/node.sock"
  wait_for "$process" "sluice-node" test -S "$work/node.sock"
}
