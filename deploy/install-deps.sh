#!/bin/bash
# Installs the Debian packages that Sluice needs and that are missing; does nothing without any.
#   deploy/install-deps.sh [--runtime | --build | --engine | --test | --help]
# --runtime: what the programs need to run; --build: and to be built; --engine: and for vllm/demo.sh;
# --test (default): what --build does, and to be tested.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
  echo "install-deps: $*" >&2
  exit 1
}

case "${1:---test}" in
  --runtime) kinds="runtime" ;;
  --build) kinds="runtime build" ;;
  --engine) kinds="runtime build engine" ;;
  --test) kinds="runtime build test" ;;
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  *)
    echo "usage: $0 [--runtime | --build | --engine | --test | --help]" >&2
    exit 2
    ;;
esac

# shellcheck source=/dev/null
system=$(. /etc/os-release 2>/dev/null && echo "${ID:-unknown} ${VERSION_ID:-}") || system="unknown"
[[ $system == "debian 12" ]] || fail "needs Debian 12, this is $system; see deploy/packages.txt"

missing=()
while read -r kind package _; do
  [[ " $kinds " == *" $kind "* ]] || continue
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || state="absent"
  [[ $state == installed ]] || missing+=("$package")
done <"$here/packages.txt"
((${#missing[@]} > 0)) || exit 0

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    fail "needs root to install ${missing[*]}; run it as root or install sudo"
  as_root=(sudo)
fi

install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq --yes --no-install-recommends "${missing[@]}" >/dev/null
}

# The package lists are fetched only if they lack a package, or know a version that is gone.
known() {
  local package
  for package in "${missing[@]}"; do
    apt-cache show "$package" >/dev/null 2>&1 || return 1
  done
}

echo "install-deps: installing ${missing[*]}"
if ! { known && install; }; then
  echo "install-deps: updating the package lists"
  "${as_root[@]}" apt-get update -qq
  install || fail "apt-get could not install ${missing[*]}"
fi
echo "install-deps: done"
