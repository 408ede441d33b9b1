#!/bin/sh
# refused.sh - what cannot be is refused once, by rank 0, with the exit code that one process would have.
. "$(dirname "$0")/lib.sh"

refused() { # EXIT_CODE N PATTERN ARGUMENTS...
    code=$1 n=$2 pattern=$3
    shift 3
    run "$code" mpirun -np "$n" "$NOWAIT" train "$@"
    said 1 "$pattern"
    out_empty
}
refused 2 4 "^nowait: .*--no-such" $world --no-such 1
refused 2 4 "^nowait: .*--lr" $world --lr fast
refused 2 2 "^nowait: 2 replicas would train apart.*--exchange" $narrow --threads 1 --exchange none
refused 2 2 "^nowait: 2 replicas would train apart.*--exchange" $narrow --threads 1
refused 2 2 "^nowait: --world-size 3, but the world has 2 ranks" $world --world-size 3
refused 2 2 "^nowait: --virtual simulates all ranks in one process.*without mpirun" $world --virtual 2
refused 2 2 "^nowait: .*'link_down'" $world --faults "$work/links.yaml"
refused 3 2 "^nowait: .*no-such-file" $world --resume "$work/no-such-file"
