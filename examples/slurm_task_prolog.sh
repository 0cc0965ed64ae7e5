#!/bin/sh
# Guards what a Slurm job runs on this node, for as long as it runs. For all jobs, in slurm.conf:
#
#   TaskProlog=/etc/slurm/slurm_task_prolog.sh
#
# or for one: srun --task-prolog slurm_task_prolog.sh ... Reports of hangs are in the folder that the job was submitted
# from; NSA_HARNESS_NOTIFY, an address of apprise, is told, too.
[ "${SLURM_LOCALID:-0}" = 0 ] && command -v nsa-harness >/dev/null || exit 0
folder="${SLURM_SUBMIT_DIR:-$PWD}/nsa-harness-$SLURM_JOB_ID/$(uname -n)"
mkdir -p "$folder" || exit 0
# The task is what this script's parent becomes. There is no Python in it yet: asked again until there is.
setsid sh -c '
    echo "guards task $SLURM_TASK_PID"
    while sleep 5 && kill -0 "$SLURM_TASK_PID"; do
        nsa-harness guard "$SLURM_TASK_PID" --runs "$1" ${NSA_HARNESS_NOTIFY:+--notify "$NSA_HARNESS_NOTIFY"}
    done
' guard "$folder" >"$folder/guard.log" 2>&1 </dev/null &
# Slurm ends what is left of this script's session, so not before the guard has one of its own.
until [ -s "$folder/guard.log" ]; do sleep 0.1; done
