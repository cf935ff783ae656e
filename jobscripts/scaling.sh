#!/bin/bash
# hpckit bench scaling weather/thermal grid.nx=8000 grid.nz=4000 --ranks 1,4,16,64 --launcher 'srun --mpi=pmi2 --kill-on-bad-exit=1 --cpu-bind=cores': 1 node, 64 ranks on each.
# Made by hpckit submit; `sbatch FILE` submits it as it stands.

#SBATCH --job-name=bench-scaling
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=64
#SBATCH --cpus-per-task=1
#SBATCH --time=02:00:00
#SBATCH --output=slurm-%x-%j.out
#SBATCH --open-mode=append

set -o pipefail
# shellcheck source=/dev/null
source .venv/bin/activate || exit 3
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"
export NUMBA_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"

on_each_node() {
    srun --mpi=none --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 "$@"
}
# A start that was killed leaves segments of MPI in memory, and a step of the same number takes them for its
# own. Those of this user that no process maps are removed.
clean_memory() {
    on_each_node bash -s <<'CLEAN'
find /dev/shm -maxdepth 1 -type f -user "$UID" -not -newermt "-2 seconds" \
    \( -name "mpich_shm_*" -o -name "*_segment.*" \) |
    while read -r file; do
        grep -qsF "$file" /proc/[0-9]*/maps || rm -f "$file"
    done
CLEAN
}
[ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] || clean_memory

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

hpckit bench scaling weather/thermal grid.nx=8000 grid.nz=4000 --ranks 1,4,16,64 --launcher 'srun --mpi=pmi2 --kill-on-bad-exit=1 --cpu-bind=cores'
code=$?
keep_cache
exit "$code"
