#!/bin/bash
# Starts dataClay on the nodes of a job, for `spliter slurm --backend compss+dataclay`. The batch script
# of enqueue_compss calls it before the application:
#   storage_init.sh JOB MASTER_NODE STORAGE_NODE "WORKER_NODES" NETWORK PROPERTIES VARIABLES
# PROPERTIES is written by `spliter slurm`. Both halves of the storage interface read the file
# storage.properties made here.
# shellcheck disable=SC1090,SC2154
set -euo pipefail

job=$1 master=$2 workers=$4 network=$5 properties=$6
source "$properties"
# COMPSs adds this to the names of nodes.
suffix=
[ "$network" != infiniband ] || suffix=-ib0

store_file=$work/store-$job
metadata_file=$work/metadata-$job
steps_file=$work/steps-$job
settings=$HOME/.COMPSs/$job/storage/cfgfiles/storage.properties
mkdir -p "$work/logs" "$(dirname "$settings")"
rm -f "$store_file" "$metadata_file" "$steps_file"

die() {
    echo "$1; see $work/logs" >&2
    exit 1
}

# step NAME NODE COMMAND...: a service, which runs on when this script has ended.
step() {
    local name=$1 node=$2
    shift 2
    setsid srun "${step_options[@]}" --nodes=1 --ntasks=1 --nodelist="$node" \
        "$python" -m spliter_slurm.services "$@" "${interface[@]}" \
        > "$work/logs/$name-$job.log" 2>&1 < /dev/null &
    echo "$!" >> "$steps_file"
}

# await FILE: until a service has written where it is.
await() {
    local end=$((SECONDS + seconds))
    until [ -s "$1" ]; do
        [ "$SECONDS" -lt "$end" ] || die "no $1 after $seconds s"
        sleep 0.2
    done
}

step store "$master" store --file "$store_file"
await "$store_file"
store=$(< "$store_file")
step metadata "$master" metadata --store "$store" --file "$metadata_file"
await "$metadata_file"
service=$(< "$metadata_file")

homes=()
read -ra nodes <<< "$master $workers"
for node in "${nodes[@]}"; do
    id=$(< /proc/sys/kernel/random/uuid)
    step "backend-$node" "$node" backend --id "$id" --store "$store" --threads "$threads" --scratch "$scratch"
    homes+=("$id=$node$suffix")
done
"$python" -m spliter_slurm.services dataclay-ready \
    --store "$store" --metadata "$service" --backends "${#nodes[@]}" --seconds "$seconds" ||
    die "dataClay did not come up"

cat > "$settings" << END
DC_HOST=${service%:*}
DC_PORT=${service##*:}
DATACLAY_KV_HOST=${store%:*}
DATACLAY_KV_PORT=${store##*:}
SPLITER_COMPSS_WORKERS=$(IFS=,; echo "${homes[*]}")
END
