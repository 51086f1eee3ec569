#!/bin/sh
# Which commit of an engine made its answers worse? Run as
#   git bisect start BAD GOOD && git bisect run /path/to/git-bisect.sh
# Builds and starts the engine at each commit, and lets a gate say whether it still answers as it should. A commit that
# cannot be built, or whose gate cannot decide, is skipped (exit code 125).
set -u

make engine || exit 125

./engine serve my-model --port 8000 &
server=$!
trap 'kill "$server" 2>/dev/null' EXIT

# --give-up-after also bounds how long the server may take to start.
assay gate gate.toml --fresh --give-up-after 600 --bisect
