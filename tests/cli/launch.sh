#!/bin/sh
# launch.sh - `nowait launch` with a stand-in for mpirun and srun ($FAKE, tests/support/fake_mpirun.c), whose ranks die,
# hang or refuse as they are told; and with the real train as a job of one rank.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"
. "$tests/runs.sh"
unset SLURM_JOB_ID SLURM_STEP_NUM_TASKS OMPI_COMM_WORLD_SIZE PMI_SIZE PBS_NODEFILE LSB_DJOB_HOSTFILE
mkdir "$work/bin" "$work/slurm"
[ -x "$FAKE" ] || { echo "FAKE does not name the stand-in for mpirun"; exit 1; }
ln -s "$FAKE" "$work/bin/mpirun"
ln -s "$FAKE" "$work/slurm/srun"
PATH=$work/bin:$PATH
export FAKE_LOG="$work/calls"
options="--model lenet5 --dataset synthetic --lr 0.01"

# job EXIT_CODE SCRIPT RUN OPTIONS...: three ranks; what the stand-in was called with is in $work/calls.
job() {
    code=$1 dir=$3
    export FAKE_SCRIPT="$2"
    shift 3
    rm -f "$work/calls"
    run "$code" "$NOWAIT" launch -n 3 --restart-delay 0 "$@" -- train $options --threads 1 --run-dir "$runs/$dir"
}
calls() { equal "number of calls" "$(wc -l <"$work/calls")" "$1"; }
call_has() { sed -n "$1p" "$work/calls" | grep -Eq -- "$2" || complain "call $1 has no '$2': $(sed -n "$1p" "$work/calls")"; }
call_lacks() { ! sed -n "$1p" "$work/calls" | grep -Eq -- "$2" || complain "call $1 has '$2'"; }
log_has() { grep -Eq -- "$2" "$runs/$1/launch.log" || complain "launch.log has no '$2': $(cat "$runs/$1/launch.log")"; }
nobody_left() { ! pgrep -f "run-dir=$runs/$1" >/dev/null 2>&1 || complain "processes were left: $(pgrep -af "run-dir=$runs/$1")"; }

# ---- all goes well ----
job 0 "" fine
out_has '^rank 0 ends at step 10'
err_has "^nowait launch: 3 ranks in $runs/fine\$"
calls 1
call_has 1 "^-np 3 .*--bind-to none .* train --model lenet5 .*--threads 1 .*--run-dir=$runs/fine\$"
call_lacks 1 'resume'
log_has fine '^\{"event":"start","time":[0-9.]+,"attempt":1,"ranks":3,"command":"mpirun -np 3 '
log_has fine '^\{"event":"end",.*"exit_code":0,"message":"done"\}'
equal "lines of launch.log" "$(wc -l <"$runs/fine/launch.log")" 2

# ---- a rank dies: the job goes on from the newest checkpoint ----
job 0 "1:1:kill:5" killed
out_has '^rank 0 ends at step 10'
err_has '^nowait launch: a rank died of signal 9 \(Killed\), as exit code 137 tells$'
err_has '^nowait launch: restarting from step 4 \(2 of 3 restarts without a new checkpoint left\)$'
calls 2
call_has 2 "--run-dir=$runs/killed --resume=$runs/killed\$"
log_has killed '^\{"event":"death",.*"attempt":1,"exit_code":137,"signal":9\}'
log_has killed '^\{"event":"restart",.*"from_step":4,"restarts_left":2\}'
log_has killed '^\{"event":"end",.*"attempt":2,"exit_code":0'
nobody_left killed
job 0 "1:2:crash:7" crashed
err_has '^nowait launch: a rank died of signal 11 \(Segmentation fault\), as exit code 139 tells$'
err_has '^nowait launch: restarting from step 6 '

# Before the first checkpoint: from the beginning.
job 0 "1:2:kill:1" young
err_has '^nowait launch: restarting from the beginning: there is no checkpoint yet'
call_lacks 2 'resume'

# The ranks themselves say that one was lost.
job 0 "1:0:lost:3" lost
err_has "^nowait launch: a rank was lost; what the others knew is in $runs/lost/dumps\$"
err_has '^nowait launch: restarting from step 2 '
log_has lost '^\{"event":"death",.*"attempt":1,"exit_code":5\}'

# ---- the budget of restarts ----
job 5 "0:1:kill:1" hopeless --max-restarts 2
calls 3
err_has 'restarting from the beginning.*\(1 of 2 '
err_has 'restarting from the beginning.*\(0 of 2 '
err_has "^nowait: a rank was lost, and 2 restarts brought no new checkpoint; .*: nowait launch -n 3 -- train --resume $runs/hopeless\$"
log_has hopeless '"event":"end",.*"exit_code":5,'
job 5 "0:1:kill:1" never --max-restarts 0
calls 1
job 0 "1:0:kill:3 2:0:kill:5 3:0:kill:7 4:0:kill:9" progress --max-restarts 1 # each time there was a new checkpoint
calls 5
equal "restarts left each time" "$(grep -c '"restarts_left":0' "$runs/progress/launch.log")" 4
job 5 "1:0:kill:3 2:0:kill:3" standstill --max-restarts 1
calls 2
job 5 "0:2:lost:5" peer --max-restarts 1 # the ranks themselves say that a peer was lost
calls 2

# ---- what would only fail again is not tried again ----
job 1 "0:2:fail:3" failed
calls 1
err_has "^nowait: the job in $runs/failed failed with exit code 1; see its message above"
job 2 "0:0:refuse:1" refused
calls 1
err_has '^nowait: train refused to begin; see its message above'
job 3 "0:1:file:5" file
calls 1
err_has '^nowait: train found a bad input file; see its message above'
equal "deaths" "$(cat "$runs/failed/launch.log" "$runs/refused/launch.log" "$runs/file/launch.log" | grep -c '"event":"death"')" 0
job 0 "" quiet --quiet
err_empty
call_has 1 ' train --quiet=true '

# ---- a wish to stop ----
# background SIGNAL RUN: sends it when the ranks have begun.
background() {
    signal=$1 dir=$2
    rm -f "$work/calls"
    last="nowait launch in the background, SIG$signal"
    FAKE_SCRIPT=${3:-} FAKE_STEPS=100000 "$NOWAIT" launch -n 2 -- train $options --threads 1 \
        --run-dir "$runs/$dir" >"$work/out" 2>"$work/err" &
    process=$!
    while kill -0 $process 2>/dev/null && [ ! -d "$runs/$dir/checkpoints" ]; do sleep 0.02; done
    sleep 0.3
    kill -s "$signal" $process
}
hangup=HUP
grep -q '^SigIgn:.*[13579bdf]$' /proc/self/status && hangup= # nohup's wish, which launch obeys
for signal in INT TERM USR1 $hangup; do
    background $signal "asked-$signal"
    wait $process
    equal "exit code" "$?" 4
    out_has '^rank 0 ends at step [0-9]+'
    err_has "^nowait: interrupted; continue with: nowait launch -n 2 -- train --resume $runs/asked-$signal\$"
    step=$(sed -n 's/^rank 0 ends at step //p' "$work/out")
    [ -d "$runs/asked-$signal/checkpoints/$step" ] || complain "no checkpoint of the last step was written"
    nobody_left "asked-$signal"
done
# A second wish, later than a second, kills; also a launcher that does not obey.
for deaf in "" 1; do
    [ -n "$deaf" ] && export FAKE_DEAF=1
    background TERM "impatient$deaf" 1:1:hang:3 # one rank does not hear
    sleep 1.2
    kill -0 $process || complain "it did not wait for the rank that hangs"
    kill -s TERM $process
    wait $process
    equal "exit code" "$?" 4
    nobody_left "impatient$deaf"
done
unset FAKE_DEAF

# One supervisor at a time; and ranks do not outlive it.
rm -f "$work/calls"
FAKE_SCRIPT=1:0:hang:1 "$NOWAIT" launch -n 2 -- train $options --run-dir "$runs/busy" >"$work/out" 2>"$work/err" &
process=$!
while kill -0 $process 2>/dev/null && [ ! -s "$runs/busy/launch.log" ]; do sleep 0.02; done
run 2 "$NOWAIT" launch -n 2 -- train $options --run-dir "$runs/busy"
err_has "another 'nowait launch' supervises $runs/busy"
kill -s KILL $process
wait $process 2>/dev/null
sleep 0.3
nobody_left busy

# ---- command lines ----
dry() { run 0 "$NOWAIT" launch --dry-run "$@"; }
dry -n 4 --run-dir "$runs/dry" --seed 3 -- train $options
out_has "^mpirun -np 4 --oversubscribe --bind-to none [^ ]*nowait train --seed=3 .*--run-dir=$runs/dry .*--threads=[0-9]+ --run-dir=$runs/dry\$|^mpirun -np 4 --oversubscribe --bind-to none [^ ]*nowait train --run-dir=$runs/dry --seed=3 --model"
[ ! -e "$runs/dry" ] || complain "a dry run left something"
dry -n 4 -- train $options --threads 2
out_has 'train --model lenet5 --dataset synthetic --lr 0.01 --threads 2 --run-dir=runs/lenet5-synthetic$'
echo 'node1 slots=2' >"$work/hosts"
dry -n 4 --hosts "$work/hosts" --launcher-args '--map-by slot:PE=2 -x "A B=c"' -- train $options
out_has "^mpirun -np 4 --hostfile $work/hosts --map-by slot:PE=2 -x 'A B=c' "
out_lacks 'bind-to|oversubscribe|--threads'
run 3 "$NOWAIT" launch -n 4 --hosts "$work/nowhere" -- train $options
err_has "nowhere: there is no such file; it has a line for each host"
dry -n 1 -- train $options
out_has '^[^ ]*nowait train --model lenet5'
dry -n 1 --launcher mpirun -- train $options
out_has '^mpirun -np 1 '
run 2 "$NOWAIT" launch -n 2 --launcher-args "--x 'y" -- train $options
err_has "a ' is opened but not closed"
run 1 "$NOWAIT" launch -n 2 --launcher srun -- train $options
err_has 'no srun in PATH'

# SLURM: srun inside a job, and as its words say it.
PATH=$work/slurm:$PATH
SLURM_JOB_ID=7 dry -n 4 --launcher-args "--mpi=pmix" -- train $options --run-dir "$runs/dry"
out_has "^srun --ntasks=4 --kill-on-bad-exit=1 --mpi=pmix [^ ]*nowait train $options --run-dir $runs/dry --run-dir=$runs/dry\$"
SLURM_JOB_ID=7 dry -n 4 --launcher mpirun -- train $options
out_has '^mpirun -np 4 --bind-to none'
dry -n 4 -- train $options
out_has '^mpirun '
SLURM_JOB_ID=7 run 2 "$NOWAIT" launch -n 4 --hosts "$work/hosts" -- train $options
err_has 'is for mpirun; SLURM knows its hosts'
SLURM_STEP_NUM_TASKS=4 run 2 "$NOWAIT" launch -n 4 -- train $options
err_has 'SLURM_STEP_NUM_TASKS=4 says that it was started 4 times; call it once'
job 0 "1:1:kill:5" slurm --launcher srun
calls 2
call_has 1 '^--ntasks=3 --kill-on-bad-exit=1 '

# ---- mistakes are found before anything is started ----
run 2 "$NOWAIT" launch
err_has 'after two dashes, for instance: nowait launch -n 2 -- train'
run 2 "$NOWAIT" launch -n 2 train --model lenet5
err_has 'after two dashes'
run 2 "$NOWAIT" launch -n 2 -- eval x
err_has 'after two dashes'
run 2 "$NOWAIT" launch -n 0 -- train
run 2 "$NOWAIT" launch -n 2 odd -- train
err_has "'odd' is not understood before the two dashes"
run 2 "$NOWAIT" launch -n 2 --max-restart 3 -- train
err_has 'nearest is --max-restarts'
run 2 "$NOWAIT" launch -n 2 --timeout 3 -- train
err_has 'no option --timeout'
run 2 "$NOWAIT" launch -n 2 -- train --momentun 0.9
err_has 'nearest is --momentum'
run 2 "$NOWAIT" launch -n 2 -- train --print-config
err_has "is for training"
run 2 "$NOWAIT" launch -n 2 -- train --help
err_has "nowait train --help"
run 0 "$NOWAIT" launch --help
out_has 'usage: nowait launch -n N'
out_has '--max-restarts R '
run 0 "$NOWAIT" help launch
out_has '--launcher auto\|mpirun\|srun'
PATH=$work/nothing run 1 "$NOWAIT" launch -n 2 -- train $options
err_has 'no mpirun in PATH; install one \(Debian: openmpi-bin\)'
printf '#!/bin/sh\necho "cannot reach node1" >&2\nexit 255\n' >"$work/slurm/mpirun"
chmod +x "$work/slurm/mpirun"
run 1 "$NOWAIT" launch -n 2 -- train $options --run-dir "$runs/unreached"
err_has '^cannot reach node1'
err_has "^nowait: the job in $runs/unreached failed with exit code 255; see its message above"
equal "starts" "$(grep -c '"event":"start"' "$runs/unreached/launch.log")" 1
rm "$work/slurm/mpirun"

# ---- the real train, one rank ----
train alone --max-epoch 2
run 0 "$NOWAIT" launch -n 1 --quiet -- train $tiny --max-epoch 2 --run-dir "$runs/one"
same_run alone one
run 2 "$NOWAIT" launch -n 1 -- train $tiny --max-epoch 2 --run-dir "$runs/one"
err_has "holds a run already; continue it with --resume"
run 3 "$NOWAIT" launch -n 1 --quiet -- train --dataset cifar10 --data-dir "$work/none" --no-download --run-dir "$runs/no-data"
err_has '^nowait: train found a bad input file; see its message above'
# Killed: the supervisor goes on. Asked to stop, by any signal: it leaves a checkpoint.
train unkilled --max-epoch 40 --eval-every 20 --checkpoint-every 20 --threads 1
one() { # DIR: in the background, until it has a checkpoint
    last="nowait launch of one rank in $1"
    "$NOWAIT" launch -n 1 --restart-delay 0 -- train $tiny --quiet --threads 1 --max-epoch 40 --eval-every 20 \
        --checkpoint-every 20 --run-dir "$runs/$1" >"$work/out" 2>"$work/err" &
    process=$!
    while kill -0 $process 2>/dev/null && ! ls "$runs/$1/checkpoints" 2>/dev/null | grep -q .; do sleep 0.01; done
}
one killed-one
child=$(cat /proc/$process/task/$process/children)
[ -n "$child" ] && kill -s KILL $child
wait $process
equal "exit code" "$?" 0
err_has '^nowait launch: a rank died of signal 9 \(Killed\), as exit code 137 tells$'
err_has '^nowait launch: restarting from step [0-9]+'
same_run unkilled killed-one
one asked-one
kill -s "${hangup:-TERM}" $process
wait $process
equal "exit code" "$?" 4
equal "status" "$(value asked-one status)" interrupted
run 0 "$NOWAIT" launch -n 1 --quiet -- train --resume "$runs/asked-one"
same_run unkilled asked-one

finish
