#!/bin/bash
# A study of three resolutions, and what follows it: the array first, then, when all of its runs are done, a job that
# lists them. Run on the login node, in the folder that holds jobscripts/ and .venv/:  jobscripts/study.sh
set -euo pipefail

study=$(sbatch --parsable "$@" jobscripts/weather_array.sh)
study=${study%%;*} # a federation adds its cluster's name
sbatch "$@" --dependency="afterok:$study" --nodes=1 --ntasks=1 --time=00:10:00 --job-name=after-study \
    --output=slurm-%x-%j.out --wrap '.venv/bin/hpckit ls runs'
echo "job $study: three runs; hpckit ls shows them"
