#!/bin/bash
# Installs what a build folder holds into the system: programs, systemd units, sample configurations
# (existing ones are kept), the user of the node daemon. Needs root. Starts nothing.
#   deploy/install.sh [--help | BUILD_FOLDER]
set -euo pipefail

case "${1-}" in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  -*)
    echo "usage: $0 [--help | BUILD_FOLDER]" >&2
    exit 2
    ;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-$root/build}

fail() {
  echo "install: $*" >&2
  exit 1
}

((EUID == 0)) || fail "needs root"
[[ -f $build/CMakeCache.txt ]] || fail "$build holds no build; deploy/quickstart.sh makes one"

"$root/deploy/install-deps.sh" --runtime
cmake --install "$build" --prefix /usr --strip >/dev/null

mkdir -p /etc/sluice
for config in sluiced.toml sluice-node.toml; do
  if [[ -e /etc/sluice/$config ]]; then
    echo "install: kept /etc/sluice/$config"
  else
    install -m 0644 "$root/deploy/$config" "/etc/sluice/$config"
  fi
done

if ! getent passwd sluice-node >/dev/null; then
  useradd --system --user-group --no-create-home --home-dir /nonexistent \
    --shell /usr/sbin/nologin sluice-node
fi
if [[ -d /run/systemd/system ]]; then systemctl daemon-reload; fi

echo "install: done; start with: systemctl enable --now sluiced (server) or sluice-node (GPU host)"
