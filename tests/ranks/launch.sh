#!/bin/sh
# launch.sh - `nowait launch` with the real mpirun: a rank that is killed is named, the job goes on by itself from its newest
# checkpoint and ends with the weights of a job that nobody disturbed; and a wish to stop leaves a run that can go on.
. "$(dirname "$0")/mpi.sh"
# Or the UCX of MPICH, which reads the memory of other ranks, aborts a rank whose neighbour is gone, and that one is blamed.
export UCX_TLS=^cma
undisturbed whole

# begin DIR OPTIONS...: a job of two ranks in the background.
begin() {
    dir=$1
    shift
    last="nowait launch in $dir"
    "$NOWAIT" launch -n 2 --max-restarts 2 --restart-delay 0 --timeout 20 -- train $job $long --run-dir "$runs/$dir" "$@" \
        >"$work/out" 2>"$work/err" &
    process=$!
}
# ended CODE
ended() {
    wait $process
    equal "exit code" "$?" "$1"
    nobody_left "$dir"
}

# ---- a rank is killed: first one, then in the next attempt the other ----
begin killed
await 1 killed 120 && kill -KILL "$pid"
second=$pid
while [ ! -e "$runs/killed/ranks/0" ] || [ "$(grep -c '"event":"start"' "$runs/killed/launch.log")" -lt 2 ]; do
    kill -0 $process || break
    sleep 0.02
done
await 0 killed 220 && kill -KILL "$pid"
ended 0
err_has "^nowait launch: rank 1 on [^ ]+ \\(process $second\\) .* at step [0-9]+; it was last "
err_has "^nowait launch: rank 0 on [^ ]+ \\(process $pid\\) .* at step [0-9]+; it was last "
log_has killed "\"event\":\"death\",.*\"attempt\":1,\"rank\":1,.*\"process\":$second,"
log_has killed "\"event\":\"death\",.*\"attempt\":2,\"rank\":0,.*\"process\":$pid,"
log_has killed '"event":"restart",.*"attempt":1,"from_step":1[05]0,'
log_has killed '"event":"restart",.*"attempt":2,"from_step":2[05]0,'
log_has killed '"event":"end",.*"attempt":3,"exit_code":0,'
equal "deaths" "$(grep -c '"event":"death"' "$runs/killed/launch.log")" 2
equal "weights after two deaths" "$(weights killed)" "$(weights whole)"

# ---- a wish to stop ----
begin asked
await 0 asked 120 && kill -TERM $process
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
