# Sourced by the scripts beside it: where they run, and how they tell what they do.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Nothing here may wait for somebody to type.
exec </dev/null
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
if [ "${CI:-}" = true ]; then
    # A fresh clone is compiled once: files for the next time cost more than they save.
    export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
fi

# step NAME COMMAND...: runs the command, its output untouched, and says how long it took.
step() {
    local name="$1" begun=$SECONDS code=0
    shift
    printf '\n==> %s: %s\n' "$name" "$*"
    "$@" || code=$?
    if [ "$code" -ne 0 ]; then
        printf '==> %s FAILED with code %s after %s s\n' "$name" "$code" "$((SECONDS - begun))" >&2
        exit 1
    fi
    printf '==> %s: ok, %s s\n' "$name" "$((SECONDS - begun))"
}

# component SUBCOMMAND NAME: a minimal toolchain lacks some; rustup can fetch them.
component() {
    cargo "$1" --version >/dev/null 2>&1 || rustup component add "$2"
}
