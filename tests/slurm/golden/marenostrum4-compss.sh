#!/bin/bash
# compss-2n4w24t: 6 runs on compss; 2 nodes, workers on each: 2, threads of each: 24
# Site marenostrum4: MareNostrum 4, general purpose nodes.
# Made by `spliter slurm`. Not for sbatch: enqueue_compss writes and submits a batch script of
# its own. SPLITER_AFTER is the job after which this one is to run.

module purge
module load python COMPSs
# The virtual environment that was active when this was submitted; modules may have hidden it.
# shellcheck disable=SC1091
[ -z "${VIRTUAL_ENV:-}" ] || source "$VIRTUAL_ENV/bin/activate" || exit 1
# One thread to a task: the tasks are what runs in parallel.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

set -euo pipefail
python=python
work='/gpfs/scratch/a user/split/jobs/compss-2n4w24t'
mkdir -p "$work/logs"

exec enqueue_compss \
    --job_name=compss-2n4w24t \
    --job_dependency="${SPLITER_AFTER:-None}" \
    --exec_time=20 \
    --num_nodes=2 \
    --cpus_per_node=48 \
    --worker_in_master_cpus=48 \
    --qos=bsc_cs \
    --network=infiniband \
    --job_execution_dir="$work" \
    --log_dir="$work/logs" \
    --master_working_dir="$work" \
    --worker_working_dir="$work" \
    --python_interpreter="$(command -v "$python")" \
    --pythonpath="${PYTHONPATH:-}" \
    --lang=python \
    "$("$python" -c 'from spliter_slurm import compss_program; print(compss_program.__file__)')" \
    '/gpfs/scratch/a user/split/scripts/compss-2n4w24t.json' "$work" 48
