#!/usr/bin/env bash
# Run on {{ launch.nodes }} machines by ssh, from any machine that reaches them: bash run.sh
# All of them must see this folder under the same path, and let you in without a password. Called again, it goes on from the run's last
# checkpoint. Ctrl-C lets the run finish its step and stop.
# shellcheck disable=SC2001,SC2029  # sed escapes; what this machine puts into the commands of others is quoted for them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# What makes `populora` and `ray` known on each machine, such as: source /path/to/venv/bin/activate
activate=true

# Whoever reaches Ray's ports runs code as you. With a token that is nobody else. The file is readable by you alone.
if [[ ! -e token ]]; then
    (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > token)
fi

hosts=({{ launch.hosts | map("quote") | join(" ") }})
here=$(printf %q "$PWD") head=$(printf %q "${hosts[0]}")
address=$(ssh "${hosts[0]}" "getent ahostsv4 $head | grep -q '^127[.]' && hostname -I | cut -d ' ' -f 1") || true
head=${address:-$head}  # by its own name Debian means loopback
rm -f run.started
pattern=$(printf %q "populora (train|resume).* $(sed 's/[][\\.*^$+?(){}|]/\\&/g' <<< "$PWD/run")( |\$)")
stop() { ssh "${hosts[0]}" "pkill -INT -f $pattern"; }
trap stop INT TERM
machines=()
for host in "${hosts[@]}"; do
    ssh "$host" "cd $here && $activate && export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$here/token \
        RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=600 && ray symmetric-run --address $head:6379 --min-nodes {{ launch.nodes }} \
        --num-cpus {{ launch.cores }}{{ " --num-gpus %d" % launch.gpus if launch.gpus }} -- bash start.sh $here/run \
        >> $(printf %q "$host").log 2>&1" &
    machines+=($!)
done
echo "the run's output is in ${hosts[0]}.log, that of another machine in its own log"
while true; do
    wait "${machines[0]}" && status=0 || status=$?  # a signal ends `wait`, not the run
    kill -0 "${machines[0]}" 2> /dev/null || break
done
if ((status)) || [[ ! -e run.started ]]; then  # Ray ends with 0 where it could not start
    echo "the run has stopped with $status: see ${hosts[0]}.log" >&2
    exit 1
fi
