#!/bin/bash
# hpckit run train/gpt model.layers=12 model.width=768 batch.size=64 time.steps=20000 --gpu: 2 nodes, 4 ranks on each, one for each GPU.
# Made by hpckit submit; `sbatch FILE` submits it as it stands.

#SBATCH --job-name=gpt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=12:00:00
#SBATCH --gpus-per-node=4
#SBATCH --output=slurm-%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120

set -o pipefail
limit=
trap 'limit=yes' USR1  # under a short limit Slurm warns before the run can be asked to stop
# shellcheck source=/dev/null
source .venv/bin/activate || exit 3
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"
export NUMBA_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"

run="$SLURM_SUBMIT_DIR/runs/gpt-$SLURM_JOB_ID"

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

launch() {
    srun --mpi=pmi2 --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores --gpu-bind=none "$@"
}

checkpoint() { cat "$run/ckpt/LATEST" 2>/dev/null; }
holder() { cat "$run/lock" 2>/dev/null; }  # the ranks write it as soon as MPI has started
if [ -n "$(checkpoint)" ] || { [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && [ -e "$run/resolved.json" ]; }; then
    command=(hpckit resume "$run")
else
    command=(hpckit run train/gpt model.layers=12 model.width=768 batch.size=64 time.steps=20000 --gpu --directory "$run")
fi

job="$SLURM_JOB_ID"
before=$(checkpoint)
queued=
over=
again() {  # back into the queue, but for a job without a new checkpoint, which would come back for ever
    if [ -z "$queued" ] && [ "$(checkpoint)" != "$before" ]; then
        scontrol requeue "$job" && queued=yes
    fi
    [ -n "$queued" ]
}
# The limit itself, if no warning came: Slurm asks the ranks to stop, and ends all KillWait seconds later.
trap 'signaled=yes
    case $(scontrol show job "$job") in
    *Reason=TimeLimit*) limit=yes over=yes && again ;;
    *) exit 143 ;;  # the job was canceled
    esac' TERM

# Slurm's warning of the time limit becomes a request to stop: a file that rank 0 checks for.
trap 'limit=yes signaled=yes; touch "$run/stop"' USR1
for try in $(seq 3); do
    held=$(holder)
    launch "${command[@]}" &
    code=
    while [ -z "$code" ]; do
        signaled=
        wait $!
        code=$?
        [ -z "$signaled" ] || code=  # the signal ended the waiting, not the run
    done
    case "$code" in 0 | 2 | 3 | 75) break ;; esac
    if [ "$try" = 3 ] || [ -n "$limit" ] || [ "$(holder)" != "$held" ]; then break; fi
    echo "the ranks did not start (exit code $code); once more" >&2
    clean_memory
done
[ -z "$limit" ] || rm -f "$run/stop"
keep_cache

# 75: stopped early with a checkpoint. A run that its user stopped, by the file, stays stopped.
[ "$code" -ne 75 ] || over=yes
if [ -n "$over" ] && [ ! -e "$run/stop" ]; then
    again && exit 0
    echo "no new checkpoint since the job started: not put back into the queue" >&2
fi
exit "$code"
