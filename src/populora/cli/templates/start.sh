#!/usr/bin/env bash
# Begin the run in the folder $1, or go on with it from its last checkpoint. Ray runs already.
set -euo pipefail
mkdir -p "$(dirname "$1")"
touch "$1.started"  # tells whoever started Ray that it runs
settings="$(dirname "${BASH_SOURCE[0]}")/settings.toml"
if [[ -e "$1/config.json" ]]; then
    cmp --silent "$settings" "$1.toml" ||
        { echo "the run in $1 has other settings ($1.toml): restore settings.toml, or take another folder for another run" >&2; exit 2; }
    exec populora resume "$1"
fi
cp "$settings" "$1.toml"
exec populora train "$settings" --out "$1"
