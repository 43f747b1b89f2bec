#!/usr/bin/env bash
# Begin the run in the folder $1, or go on with it from its last checkpoint. Ray runs already.
set -euo pipefail
if [[ -e "$1/config.json" ]]; then
    exec populora resume "$1"
fi
exec populora train "$(dirname "${BASH_SOURCE[0]}")/settings.toml" --out "$1"
