#!/bin/sh
# start.sh - ranks find each other: with 2 and 4 of them the weights are those of as many simulated ranks; what is wrong
# is said once, by the rank that knows; and the launcher of another MPI is refused.
. "$(dirname "$0")/mpi.sh"

for n in 2 4; do
    ranks 0 $n "real-$n" --max-steps 20
    train "virtual-$n" --exchange allreduce --threads 1 --max-steps 20 --virtual $n
    equal "weights of $n ranks" "$(weights "real-$n")" "$(weights "virtual-$n")"
done
differ "weights of 2 and 4 ranks" "$(weights real-2)" "$(weights real-4)"

# Quiet runs show warnings.
if [ "$(nproc)" -lt 4 ]; then
    ranks 0 4 crowded --max-steps 1
    err_has '^nowait: warning: 4 ranks on .* share'
fi

# Mistakes of all ranks: before they are joined, and after.
ranks 2 3 refused --no-such-option
says 1 '^nowait: there is no option --no-such-option'
ranks 2 3 refused --virtual 3
says 1 '^nowait: --virtual simulates all ranks in one process, but a launcher started 3'
ranks 2 3 refused --exchange none
says 1 '^nowait: 3 replicas would train without each other'

# Options of one rank only; and trouble of one rank only, which the others do not know of.
pair() { # EXIT_CODE FIRST SECOND: options of rank 0 and of rank 1
    run "$1" timeout -k 5 60 mpirun -n 1 "$NOWAIT" train $job --run-dir "$runs/pair" $2 \
        : -n 1 "$NOWAIT" train $job --run-dir "$runs/pair" $3
}
pair 2 "" "--lr 0.02"
says 1 "^nowait: config of rank 1 differs from that of rank 0: 'lr: 0.02' there, 'lr: 0.01' on rank 0; start all"
pair 2 "--compress layerwise --method topk --ratio 0.1" "--compress layerwise --method topk --ratio 0.2"
says 1 "^nowait: config of rank 1 differs from that of rank 0: 'ratio: 0.2' there, 'ratio: 0.1' on rank 0; start all"
pair 2 "--compress layerwise --method topk" "--compress layerwise --method sign"
says 1 "^nowait: config of rank 1 differs from that of rank 0: 'method: sign' there, 'method: topk' on rank 0; start all"
pair 3 "" "--dataset folder --data-dir $work/nowhere"
says 1 '^nowait: rank 1: .*nowhere'
pair 3 "--dataset folder --data-dir $work/nowhere" ""
says 1 '^nowait: .*nowhere'

# The other MPI's launcher, where it is installed: each process would be alone.
[ $mpi = openmpi ] && other=mpirun.mpich || other=mpirun.openmpi
if command -v $other >/dev/null; then
    run 2 timeout -k 5 60 $other -n 3 "$NOWAIT" train $job --run-dir "$runs/alone"
    says 1 "^nowait: the mpirun of .* started 3 processes, but this program uses .*\\(Debian: mpirun.$mpi\\)"
fi
finish
