#!/bin/bash
# hpckit run md/melt 'system.cells=[200,200,200]': 4 nodes, 64 ranks on each.
# Made by hpckit submit; `sbatch FILE` submits it as it stands.

#SBATCH --job-name=melt
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=64
#SBATCH --cpus-per-task=1
#SBATCH --time=04:00:00
#SBATCH --output=slurm-%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120

set -o pipefail
# shellcheck source=/dev/null
source .venv/bin/activate || exit 3
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"
export NUMBA_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"

run="$SLURM_SUBMIT_DIR/runs/melt-$SLURM_JOB_ID"

on_each_node() {
    srun --mpi=none --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 "$@"
}
# Compiled kernels live on a disk of each node, which one task per node fills with those of earlier jobs. One
# rank per node compiles missing ones while the others wait; one file keeps them for later jobs.
store="${XDG_CACHE_HOME:-$HOME/.cache}/hpckit/kernels.tar"
export NUMBA_CACHE_DIR=/tmp/"hpckit-$UID-$SLURM_JOB_ID"
on_each_node bash -s -- "$store" <<'FILL' || unset NUMBA_CACHE_DIR
umask 077
mkdir "$NUMBA_CACHE_DIR" 2>/dev/null ||
    { [ -O "$NUMBA_CACHE_DIR" ] && [ ! -L "$NUMBA_CACHE_DIR" ]; } || exit 1  # our own folder, not a link
[ ! -f "$1" ] || tar -xmf "$1" -C "$NUMBA_CACHE_DIR" || true
FILL
mark=$(mktemp)
keep_cache() {
    [ -n "$NUMBA_CACHE_DIR" ] || return
    local new="$store.$SLURM_JOB_ID.$$"
    if [ -n "$(find "$NUMBA_CACHE_DIR" -name "*.nbc" -newer "$mark" -print -quit)" ]; then
        mkdir -p "${store%/*}" && tar -cf "$new" -C "$NUMBA_CACHE_DIR" . && mv "$new" "$store"
    fi
    rm -f "$new" "$mark"
    on_each_node rm -rf "$NUMBA_CACHE_DIR"
}

launch() {
    srun --mpi=pmi2 --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores "$@"
}

checkpoint() { cat "$run/ckpt/LATEST" 2>/dev/null; }
before=$(checkpoint)
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || [ -e "$run/ckpt/LATEST" ]; then
    command=(hpckit resume "$run")
else
    command=(hpckit run md/melt 'system.cells=[200,200,200]' --directory "$run")
fi

# Slurm's warning of the time limit becomes a request to stop: a file that rank 0 checks for.
limit=
trap 'limit=yes signaled=yes; touch "$run/stop"' USR1
launch "${command[@]}" &
code=
while [ -z "$code" ]; do
    signaled=
    wait $!
    code=$?
    [ -z "$signaled" ] || code=  # the signal ended the waiting, not the run
done
[ -z "$limit" ] || rm -f "$run/stop"
keep_cache

# 75: stopped early with a checkpoint. A run that a user stopped (the file is still there) stays stopped, and
# so does one that made no new checkpoint, since it would requeue for ever.
if [ "$code" -eq 75 ] && [ ! -e "$run/stop" ]; then
    if [ "$(checkpoint)" != "$before" ]; then
        scontrol requeue "$SLURM_JOB_ID" && exit 0
    fi
    echo "no new checkpoint since the job started: not put back into the queue" >&2
fi
exit "$code"
