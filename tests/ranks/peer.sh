#!/bin/sh
# peer.sh - programs that compute gradients themselves, as ranks under mpirun (peer.c): means, servers, a program that uses
# MPI itself, ranks that are lost; and the example of the docs.
. "$(dirname "$0")/environment.sh"

for what in means turns delayed guest; do
    run 0 timeout 60 mpirun -np 3 "$PEER" $what
    out_has "^(means|turns|delayed|guest): 20 updates"
done
rule="--lr 0.25 --momentum 0 --weight-decay 0 --max-steps 20"
for options in "" "--server-computes" "--servers 2 --server-computes" "--communication async" \
    "--communication async --server-computes" "--communication async --method topk --ratio 0.5 --memory error"; do
    run 0 timeout 60 mpirun -np 3 "$PEER" served "--exchange server $rule $options"
    out_has "^served: 20 updates"
done

run 1 timeout 60 mpirun -np 2 "$PEER" stranger
err_has "MPI was started for the program's own thread alone"
run 2 timeout 60 mpirun -np 3 "$PEER" differs
err_has "rank 1 has other options or tensors than rank 0"
run 5 timeout 60 mpirun -np 3 "$PEER" silent
err_has "has waited [0-9.]+ s for (rank 1|ranks 1)"
run 5 timeout 60 mpirun -np 3 "$PEER" uneven
err_has "has waited [0-9.]+ s for (rank|ranks) [0-9]"
timeout 60 mpirun -np 3 "$PEER" leaves >"$work/out" 2>"$work/err" && complain "a rank left, and nobody minded"
err_has "rank 1 failed: its program left before the end of the run"

# The example: the same on one rank, on three, and compressed.
run 0 "$EXAMPLE"
out_has "^w = ..., 3.00, 4.00, 5.00$"
cp "$work/out" "$work/alone"
run 0 timeout 60 mpirun -np 3 "$EXAMPLE" --exchange allreduce
cmp -s "$work/out" "$work/alone" || complain "three ranks found something else than one: $(cat "$work/alone")"
run 0 timeout 60 mpirun -np 3 "$EXAMPLE" --exchange allreduce --method topk --ratio 0.1 --memory error
cmp -s "$work/out" "$work/alone" || complain "compressed, they found something else than one: $(cat "$work/alone")"
finish
