#!/bin/sh
# launch.sh - `nowait launch` with the real mpirun: when a rank is killed, the job goes on by itself from its newest checkpoint
# and ends with the weights of a job that nobody disturbed; a wish to stop leaves a run that can go on; and what would happen
# again is not tried for ever.
. "$(dirname "$0")/mpi.sh"
# Or the UCX of MPICH, which reads the memory of other ranks, aborts a rank whose neighbour is gone.
export UCX_TLS=^cma
killed='(9|15)' # the signal that is told: MPICH's launcher joins the bits of all ranks' ends
undisturbed whole

# begin DIR OPTIONS...: a job of two ranks in the background.
begin() {
    dir=$1
    shift
    last="nowait launch in $dir"
    "$NOWAIT" launch -n 2 --max-restarts 1 --restart-delay 0 -- train $job $long --timeout 20 --run-dir "$runs/$dir" "$@" \
        >"$work/out" 2>"$work/err" &
    process=$!
}
# ended CODE
ended() {
    wait $process
    equal "exit code" "$?" "$1"
    nobody_left "$dir"
}

# ---- a rank is killed: first one, then in the next attempt the other; each time there was a new checkpoint ----
begin killed
await 1 killed 60 && kill -KILL "$pid"
while [ "$(grep -c '"event":"start"' "$runs/killed/launch.log")" -lt 2 ]; do
    kill -0 $process || break
    sleep 0.02
done
first=$(sed -n 's/.*"event":"restart",.*"from_step":\([0-9]*\).*/\1/p' "$runs/killed/launch.log")
await 0 killed $((first + 60)) && kill -KILL "$pid"
ended 0
err_has "^nowait launch: a rank died of signal $killed "
log_has killed "\"event\":\"death\",.*\"attempt\":1,\"exit_code\":[0-9]+,\"signal\":$killed\\}"
log_has killed "\"event\":\"death\",.*\"attempt\":2,\"exit_code\":[0-9]+,\"signal\":$killed\\}"
log_has killed '"event":"restart",.*"attempt":1,"from_step":[1-9][0-9]*,"restarts_left":0'
log_has killed '"event":"restart",.*"attempt":2,"from_step":[1-9][0-9]*,"restarts_left":0'
log_has killed '"event":"end",.*"attempt":3,"exit_code":0,'
equal "deaths" "$(grep -c '"event":"death"' "$runs/killed/launch.log")" 2
equal "weights after two deaths" "$(weights killed)" "$(weights whole)"

# ---- a rank is stopped: the others give it up, name it and leave dumps; the job goes on ----
begin stopped --timeout 3
await 1 stopped 60 && kill -STOP "$pid"
ended 0
err_has '^nowait: .*waited [0-9.]+ s for rank 1'
err_has "^nowait launch: a rank was lost; what the others knew is in $runs/stopped/dumps\$"
log_has stopped '"event":"death",.*"attempt":1,"exit_code":5\}'
[ -s "$runs/stopped/dumps/rank0.json" ] || complain "rank 0 left no dump"
equal "weights after a rank was stopped" "$(weights stopped)" "$(weights whole)"

# ---- a rank that dies at the same step again and again: a new checkpoint once, then none ----
echo 'faults: [{kind: die, rank: 1, at: step 120}]' >"$work/die.yaml"
begin again --faults "$work/die.yaml"
ended 5
equal "attempts" "$(grep -c '"event":"start"' "$runs/again/launch.log")" 2
err_has '^nowait: a rank was lost, and 1 restart brought no new checkpoint; '
log_has again '"event":"restart",.*"attempt":1,"from_step":100,"restarts_left":0'

# ---- a wish to stop ----
begin asked
await 0 asked 60 && kill -TERM $process
ended 4
err_has "^nowait: interrupted; continue with: nowait launch -n 2 -- train --resume $runs/asked\$"
log_has asked '"event":"end",.*"exit_code":4,'
equal "deaths" "$(grep -c '"event":"death"' "$runs/asked/launch.log")" 0
run 0 timeout -k 5 60 "$NOWAIT" launch -n 2 -- train --resume "$runs/asked"
equal "weights after a pause" "$(weights asked)" "$(weights whole)"

# ---- what train refuses is not tried again ----
begin refused --exchange none
ended 2
equal "attempts" "$(grep -c '"event":"start"' "$runs/refused/launch.log")" 1
finish
