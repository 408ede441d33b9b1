#!/bin/sh
# refused.sh - what cannot be is refused once, by rank 0, with the exit code that one process would have.
. "$(dirname "$0")/lib.sh"

cat >"$work/links.yaml" <<END
faults:
  - {kind: link_down, link: [0, 1], at: 1 s, until: 2 s}
END

refused() { # EXIT_CODE N PATTERN ARGUMENTS...
    code=$1 n=$2 pattern=$3
    shift 3
    run "$code" mpirun -np "$n" "$NOWAIT" train "$@"
    said 1 "$pattern"
    out_empty
}
refused 2 4 "^nowait: .*--no-such" $world --no-such 1
refused 2 4 "^nowait: .*--lr" $world --lr fast
refused 2 2 "^nowait: 2 replicas would train without each other.*--exchange" $narrow --threads 1 --exchange none
refused 2 2 "^nowait: 2 replicas would train without each other.*--exchange" $narrow --threads 1
refused 2 2 "^nowait: --world-size 3, but 2 ranks were started" $world --world-size 3
refused 2 2 "^nowait: --virtual simulates all ranks in one process.*without mpirun" $world --virtual 2
refused 2 2 "^nowait: .*'link_down'" $world --faults "$work/links.yaml"
echo text >"$work/text"
refused 3 2 "^nowait: .*/text" $world --resume "$work/text"

# Ranks that were started with different options, or from different data, are not one job.
run 2 mpirun -np 1 "$NOWAIT" train $world --lr 0.01 : -np 1 "$NOWAIT" train $world --lr 0.02
said 1 "^nowait: .*(option|config).*rank"
run 2 mpirun -np 2 "$NOWAIT" train $world --limit 160 : -np 1 "$NOWAIT" train $world --limit 80
said 1 "^nowait: "

# One process, where more are asked for.
run 2 "$NOWAIT" train $world --world-size 4
said 1 "^nowait: --world-size 4, but this is one process; start it with 'mpirun -np 4"
run 2 "$NOWAIT" train $world --faults "$work/links.yaml"
said 1 "^nowait: --faults is for several ranks"

# A launcher that started several processes which MPI knows nothing of: each would train alone. Only the first speaks.
for rank in 0 3; do
    run 2 env SLURM_PROCID=$rank SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_ID=0 SLURM_JOB_ID=7 \
        OMPI_MCA_ess=singleton "$NOWAIT" train $world --run-dir "$runs/apart"
    [ "$rank" = 0 ] && said 1 "^nowait: .*(4|srun)"
    [ "$rank" = 0 ] || err_empty
    [ ! -d "$runs/apart" ] || complain "a run was begun"
done
# A script of sbatch is one process, whatever the job may start later.
run 0 env SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7 OMPI_MCA_ess=singleton "$NOWAIT" train $narrow --threads 1 --max-steps 1 \
    --run-dir "$runs/script"
finish
