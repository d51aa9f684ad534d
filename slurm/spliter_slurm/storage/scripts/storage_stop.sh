#!/bin/bash
# Ends what storage_init.sh has started, after the application; takes the same arguments.
# shellcheck disable=SC1090,SC2154
set -uo pipefail

job=$1 properties=$6
source "$properties"

mapfile -t steps < "$work/steps-$job"
kill -TERM "${steps[@]}" 2> /dev/null
for _ in {1..50}; do
    kill -0 "${steps[@]}" 2> /dev/null || break
    sleep 0.2
done
timeout --kill-after=5 30 srun "${step_options[@]}" --ntasks-per-node=1 --ntasks="$SLURM_JOB_NUM_NODES" \
    rm -rf "$scratch" 2> /dev/null
rm -f "$HOME/.COMPSs/$job/storage/cfgfiles/storage.properties"
