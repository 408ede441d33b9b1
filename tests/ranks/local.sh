#!/bin/sh
# local.sh - ranks that make steps of their own and outer steps together: under mpirun and simulated they do the same, bit for
# bit, stop and go on from between outer steps, are replayed, and give up one that is lost.
. "$(dirname "$0")/lib.sh"
world="$narrow --threads 1 --exchange local"

# both N NAME OPTIONS...: the same with mpirun and simulated, with the same bytes.
both() {
    world_of=$1 name=$2
    shift 2
    ranks "$world_of" "$name" "$@"
    simulated "$world_of" "$name-virtual" "$@"
    same_weights "$name" "$name-virtual"
    for key in values headers; do
        equal "$name: $key here and there" "$(ledger "$name" sent $key)" "$(ledger "$name-virtual" sent $key)"
    done
    for key in messages bytes control; do
        equal "$name: $key sent and received" "$(ledger "$name" sent $key)" "$(ledger "$name" received $key)"
    done
}

# ---- here and there; epochs of 14 batches, which outer steps go over ----
both 3 averaged --sync-every 4 --max-epoch 2
both 3 diloco --sync-every 5 --outer-optimizer nesterov --max-epoch 2 --compare-every 3 --eval-every 1
both 3 overlapped --sync-every 3 --delay 1 --max-epoch 2 --accumulation-steps 2
both 3 streaming --sync-every 8 --fragments 4 --delay 1 --outer-optimizer nesterov --max-epoch 2
both 3 pairs --sync-every 4 --outer-group pairs --delay 1 --fragments 2 --outer-optimizer nesterov --max-epoch 2 --eval-every 1
both 2 sparse --sync-every 4 --method topk --ratio 0.05 --values 2 --memory error --outer-optimizer nesterov --max-epoch 1
both 3 factors --sync-every 4 --method powersgd --memory error --delay 1 --fragments 2 --max-epoch 1 --bn-sync recalibrate
both 3 adam --sync-every 4 --method int8 --outer-optimizer adam --max-epoch 1 --bn-sync local
ranks 3 often --sync-every 2 --max-epoch 2
is "1.8 * $(ledger averaged sent values) < $(ledger often sent values)" "half as many outer steps send half as much"

# ---- stopped anywhere, and on ----
steps="--max-steps 40 --max-epoch 9 --sync-every 7 --outer-optimizer nesterov"
# begin DIR OPTIONS...: three ranks in the background; mpirun's number is $process.
begin() {
    last="mpirun in the background: $*"
    dir=$runs/$1
    shift
    mpirun -np 3 "$NOWAIT" train $world $steps --run-dir "$dir" "$@" >"$work/out" 2>"$work/err" &
    process=$!
}
until_step() {
    for i in $(seq 1000); do
        [ "$(steps_of "$dir")" -ge "$1" ] && return
        sleep 0.02
    done
}
ended() { # CODE
    wait "$process"
    equal "exit code" "$?" "$1"
}
for options in "--delay 0" "--delay 1 --fragments 3" "--delay 1 --outer-group pairs"; do
    name=$(echo "$options" | tr -d ' -')
    ranks 3 "whole$name" $steps $options
    begin "asked$name" $options
    until_step 10
    kill -s USR1 "$process"
    ended 4
    said 1 "^nowait: interrupted at step [0-9]+; continue with: nowait train --resume "
    cp -r "$dir" "$dir-there"
    run 0 mpirun -np 3 "$NOWAIT" train --resume "$dir" --quiet
    run 0 "$NOWAIT" train --resume "$dir-there" --virtual 3 --quiet
    same_weights "whole$name" "asked$name"
    same_weights "whole$name" "asked$name-there"
    run 0 "$NOWAIT" replay "$dir" --threads 1 --quiet
    out_has "same weights as summary.json"
done

# A signal that reaches one rank only stops all, and another number of ranks goes on.
begin one
until_step 6
kill -s TERM "$(process_of "$dir" 2)"
ended 4
run 0 mpirun -np 2 "$NOWAIT" train --resume "$dir" --quiet
equal "steps" "$(value one steps)" 40

# ---- one that is silent is named, and the job ends ----
begin lost --timeout 3 --max-steps 100000 --max-epoch 100000 --eval-every 100000
until_step 10
kill -s STOP "$(process_of "$dir" 1)"
ended 5
err_has '^nowait: .*waited [0-9.]+ s for rank 1'
[ -s "$dir/dumps/rank0.json" ] || complain "rank 0 left no dump"
finish
