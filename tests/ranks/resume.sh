#!/bin/sh
# resume.sh - jobs of several ranks that are stopped or killed go on, under mpirun or simulated, to the same weights.
. "$(dirname "$0")/lib.sh"
steps="--max-steps 60 --max-epoch 9"

# begin DIR OPTIONS...: three ranks in the background; mpirun's number is $process.
begin() {
    last="mpirun in the background: $*"
    dir=$runs/$1
    shift
    mpirun -np 3 "$NOWAIT" train $world $steps --run-dir "$dir" "$@" >"$work/out" 2>"$work/err" &
    process=$!
}
until_steps() {
    while kill -0 "$process" 2>/dev/null; do
        [ "$(cat "$dir/metrics.jsonl" 2>/dev/null | grep -c '^{"record":"step"')" -ge "$1" ] && return
        sleep 0.01
    done
}
ended() {
    wait "$process"
    got=$?
    [ "$got" = "$1" ] || [ "$1" = any ] || complain "exit code $got, not $1"
    [ "$got" != 0 ] || complain "the job was not stopped before its end"
}
pids() { pgrep -f "train $world $steps --run-dir $dir" | grep -vx "$process"; }

for delay in 0 1; do
    ranks 3 "whole$delay" $steps --delay $delay

    # Launchers pass SIGUSR1 on: all ranks stop before the same step, one says so.
    begin "asked$delay" --delay $delay --checkpoint-every 1000
    until_steps 12
    kill -s USR1 "$process"
    ended 4
    said 1 "^nowait: interrupted at step [0-9]+; continue with: nowait train --resume "
    equal "status" "$(value "asked$delay" status)" interrupted
    run 0 mpirun -np 3 "$NOWAIT" train --resume "$dir" --quiet
    same_weights "whole$delay" "asked$delay"
done

# A signal that reaches one rank only stops all.
begin one --checkpoint-every 1000
until_steps 8
kill -s TERM "$(pids | tail -n 1)"
ended 4
said 1 "interrupted at step"
# ... and what mpirun began, a virtual cluster ends.
run 0 "$NOWAIT" train --resume "$dir" --virtual 3 --quiet
same_weights whole0 one

# SIGTERM to mpirun itself, which ends with a code of its own.
begin term --checkpoint-every 1000
until_steps 10
kill -s TERM "$process"
ended any
run 0 mpirun -np 3 "$NOWAIT" train --resume "$dir" --quiet
same_weights whole0 term

# Killed, all of it: goes on from the last checkpoint.
begin killed --checkpoint-every 7 --delay 1
until_steps 20
kill -s KILL "$process" $(pids)
ended any
run 0 mpirun -np 3 "$NOWAIT" train --resume "$dir" --quiet
same_weights whole1 killed

# What a virtual cluster began, mpirun ends.
simulated 3 half --max-steps 23 --max-epoch 9
cp -r "$runs/half" "$runs/other"
run 0 mpirun -np 3 "$NOWAIT" train --resume "$runs/half" --quiet --max-steps 60
run 0 "$NOWAIT" train --resume "$runs/other" --quiet --max-steps 60 --virtual 3
same_weights half other
same_weights half whole0

# Another number of ranks goes on, too.
run 0 mpirun -np 2 "$NOWAIT" train --resume "$runs/other" --max-steps 70
equal "steps" "$(value other steps)" 70
finish
