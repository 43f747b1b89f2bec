#!/usr/bin/env bash
# Run on {{ launch.nodes }} machines by ssh, from any machine that reaches them: bash run.sh
# All of them must see this folder under the same path, and let you in without a password. Called again, it goes on from the run's last
# checkpoint.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# What makes `populora` and `ray` known on each machine, such as: source /path/to/venv/bin/activate
activate=true

# Whoever reaches Ray's ports runs code as you. With a token that is nobody else. The file is readable by you alone.
if [[ ! -e token ]]; then
    (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > token)
fi

work() {
    echo "cd '$PWD' && $activate && RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH='$PWD/token' \
        ray symmetric-run --address {{ launch.hosts[0] | quote }}:6379 --min-nodes {{ launch.nodes }} --num-cpus {{ launch.cores }}{{ " --num-gpus %d" % launch.gpus if launch.gpus }} -- \
        bash start.sh '$PWD/run'"
}
pids=()
for host in {{ launch.hosts | map("quote") | join(" ") }}; do
    ssh "$host" "$(work)" >> "$host.log" 2>&1 &
    pids+=($!)
done
echo "started; the first machine's output is in {{ launch.hosts[0] | quote }}.log"
wait "${pids[0]}"
