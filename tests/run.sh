#!/bin/bash
# Builds everything and runs the tests; the last line is `N passed, N failed[, N skipped]`.
#   tests/run.sh [--asan | --tsan] [--fast] [ctest arguments]
# --asan: address and undefined-behaviour sanitizers, in build-asan; --tsan: thread sanitizer, in
# build-tsan; --fast: without the tests labelled slow. Other arguments go to ctest, such as `-R codec`.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
sanitize=""
ctest_args=()
launcher=()

for argument in "$@"; do
  case $argument in
    --asan)
      build=$root/build-asan
      sanitize=address
      ;;
    --tsan)
      build=$root/build-tsan
      sanitize=thread
      ;;
    --fast) ctest_args+=(--label-exclude slow) ;;
    --help)
      sed -n '2,5s/^# //p' "$0"
      exit 0
      ;;
    *) ctest_args+=("$argument") ;;
  esac
done

# Options and suppressions reach every test through the environment. Packaged libraries are not
# instrumented; tests/suppressions says what is ignored about them and why.
suppressions=$root/tests/suppressions
export ASAN_OPTIONS="detect_leaks=1:halt_on_error=1:detect_stack_use_after_return=1"
export LSAN_OPTIONS="suppressions=$suppressions/lsan.txt:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$suppressions/tsan.txt"
# The thread sanitizer needs the usual address layout, which some kernels randomise too far.
if [[ $sanitize == thread ]] && setarch -R true 2>/dev/null; then launcher=(setarch -R); fi

jobs=$(nproc)
"$root/deploy/install-deps.sh" --test
mkdir -p "$build"
cmake -S "$root" -B "$build" -G Ninja -DSLUICE_SANITIZE="$sanitize" >"$build/configure.log" 2>&1 ||
  { cat "$build/configure.log" && exit 1; }
"${launcher[@]}" cmake --build "$build" -- -j"$jobs"

junit=$build/junit.xml
rm -f "$junit"
"${launcher[@]}" ctest --test-dir "$build" --output-on-failure --output-junit "$junit" -j"$jobs" \
  "${ctest_args[@]}" || true
python3 "$root/tests/tools/ctest_summary.py" "$junit"
