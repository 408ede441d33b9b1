#!/bin/sh
# compress.sh - compressed gradients under mpirun and on a virtual cluster: the same bits, the same bytes.
. "$(dirname "$0")/lib.sh"

# both N NAME OPTIONS...
both() {
    world_of=$1 name=$2
    shift 2
    ranks "$world_of" "$name" --max-steps 8 "$@"
    simulated "$world_of" "$name-virtual" --max-steps 8 "$@"
    same_weights "$name" "$name-virtual"
    for key in values indices scales headers; do
        equal "$name: $key here and there" "$(ledger "$name" sent $key)" "$(ledger "$name-virtual" sent $key)"
    done
}

topk="--method topk --ratio 0.02 --memory error"
both 2 gathered $topk
both 3 gathered3 $topk --collective gather --values fp16
both 3 owners $topk --collective owners
both 2 delayed $topk --delay 1
both 3 dgc --method dgc --ratio 0.01 --ratio-warm-up 1 --memory-clip-norm 1
both 3 levels --method qsgd --qstates 15 --bucket 512
finish
