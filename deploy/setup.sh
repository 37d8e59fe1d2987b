#!/usr/bin/env bash
# Prepares a Debian machine that has rustup: `setup.sh run` for building and running,
# `setup.sh test` for the test suite as well. Installs only what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
need() { # command, package
  command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}

need cc build-essential
case "${1:-run}" in
  run) ;;
  test) need redis-server redis-server; need curl curl ;;
  *) echo "usage: setup.sh run|test" >&2; exit 2 ;;
esac

if [ ${#missing[@]} -gt 0 ]; then
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || {
      echo "setup: ${missing[*]} must be installed, and this is neither root nor is there sudo" >&2
      exit 1
    }
    as_root=(sudo)
  fi
  echo "setup: installing ${missing[*]}" >&2
  "${as_root[@]}" apt-get update -qq
  # RUNLEVEL=1 keeps a packaged service from being started: the tests start their own servers.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi

command -v rustup >/dev/null 2>&1 || {
  echo "setup: rustup is needed: it brings the toolchain that rust-toolchain.toml names" >&2
  exit 1
}
# Installs the pinned toolchain with its components and the WebAssembly target, if missing.
toolchain=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
target=$(sed -n 's/^targets = \["\(.*\)"\]/\1/p' rust-toolchain.toml)
if ! rustup target list --installed --toolchain "$toolchain" 2>/dev/null | grep -qx "$target" ||
  ! rustup component list --installed --toolchain "$toolchain" 2>/dev/null | grep -q '^clippy'; then
  echo "setup: installing Rust $toolchain with $target" >&2
  rustup toolchain install "$toolchain" --profile minimal \
    --component rustfmt --component clippy --target "$target" >&2
fi
