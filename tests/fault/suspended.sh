#!/bin/sh
# suspended.sh - processes that are suspended and continued, as batch systems do: a job whose ranks all stood still goes on; a
# worker of a parameter server that stood still for too long is dropped, comes back, and all updates are made; where ranks need
# each other, the job ends soon and names the rank. TRIALS of each kind; without, two of them once.
. "$(dirname "$0")/../ranks/lib.sh"
trials=${TRIALS:-1}
few=${TRIALS:+no}
timeout=2   # seconds that a rank may be silent
longer=5.5  # than twice that
common="--dataset synthetic --model lenet5 --batch-size 16 --limit 320 --threads 1 --lr 1e-3 --seed 3 --timeout $timeout"
server="--exchange server --communication async --optimizer apam --eval-every 100000"
reduce="--exchange allreduce --eval-every 100000"
count=0 good=0

# begin RANKS OPTIONS...: a job in the background.
begin() {
    n=$1
    shift
    count=$((count + 1))
    dir=$runs/job$count
    last="mpirun -np $n ... $*"
    mpirun -np "$n" "$NOWAIT" train $common --run-dir "$dir" "$@" >"$work/out" 2>"$work/err" &
    process=$!
}
until_file() { # PATTERN FILE: until a line of it matches
    tries=0
    while kill -0 "$process" 2>/dev/null && ! grep -Eqs "$1" "$2" && [ $tries -lt 6000 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
}
until_step() { until_file "^\\{\"record\":\"step\",\"step\":$1," "$dir/metrics.jsonl"; }
suspend() { # SECONDS RANK...
    seconds=$1
    shift
    pids=$(for rank in "$@"; do process_of "$dir" "$rank"; done)
    [ "$(echo "$pids" | wc -w)" = $# ] || complain "there are no ranks $*"
    kill -s STOP $pids
    sleep "$seconds"
    kill -s CONT $pids
}
# ends CODE SECONDS: the job ends within that time, with that code.
ends() {
    tries=0
    while kill -0 "$process" 2>/dev/null && [ $tries -lt $(($2 * 20)) ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    if kill -0 "$process" 2>/dev/null; then
        complain "the job goes on after $2 seconds"
        kill -s KILL "$process" $(pgrep -f -- "--run-dir $dir\\b")
    fi
    wait "$process" 2>/dev/null
    got=$?
    [ "$got" = "$1" ] && good=$((good + 1)) || complain "exit code $got, not $1"
    sleep 0.2
    [ -z "$(pgrep -f -- "--run-dir $dir\\b")" ] || complain "processes are left"
}
# goes_on: 300 updates more are made, each told once; then the job is asked to stop, and does.
goes_on() {
    at=$(grep -c '^{"record":"step"' "$dir/metrics.jsonl")
    until_step $((at + 300))
    kill -s USR1 "$process"
    ends 4 30
    equal "records of updates in order" "$(grep -c '^{"record":"step"' "$dir/metrics.jsonl")" \
        "$(sed -n 's/^{"record":"step","step":\([0-9]*\),.*/\1/p' "$dir/metrics.jsonl" | sort -n | tail -n 1)"
    ls "$dir/checkpoints" | grep -q '[0-9]' || complain "there is no checkpoint"
}
is_back() { # RANK...
    for rank in "$@"; do
        until_file "rank $rank is back" "$work/err"
        err_has "rank $rank has sent nothing for too long"
        err_has "rank $rank is back"
    done
}
steps_are() { equal "updates" "$1" "$(sed -n 's/^  "steps": \([0-9]*\),$/\1/p' "$dir/summary.json")"; }
named() { err_has "^nowait: .*waited [0-9.]+ s for ranks? ([0-9]+(, | and ))*$1(,|:| and)|^nowait: .*rank $1, a server, has sent nothing for"; }

trial=0
while [ "$trial" -lt "$trials" ]; do
    trial=$((trial + 1))

    # All ranks, in the middle of a run: nobody notices.
    begin 4 $server --max-epoch 100000
    until_step 300
    suspend $longer 0 1 2 3
    goes_on
    ! grep -q 'too long and is dropped' "$work/err" || complain "a rank was dropped although all stood still"
    # One worker, and two at once: dropped, back, and all updates are made.
    begin 4 $server --max-epoch 100000
    until_step 200
    suspend $longer 2
    is_back 2
    goes_on
    [ -z "$few" ] && continue
    begin 3 $reduce --max-epoch 100000
    until_step 100
    suspend $longer 0 1 2
    goes_on
    begin 5 $server --max-epoch 100000
    until_step 200
    suspend $longer 2 4
    is_back 2 4
    goes_on
    begin 5 $server --servers 2 --max-epoch 100000
    until_step 200
    suspend $longer 3
    is_back 3
    goes_on

    # While it is away a checkpoint is written; it joins the run that follows.
    begin 4 $server --max-epoch 100000 --checkpoint-every 500
    until_step 400
    suspend $longer 3
    is_back 3
    goes_on

    # A server for a moment; and for so long that workers fail.
    begin 3 $server --max-epoch 100000
    until_step 100
    suspend 2.5 0
    goes_on
    ! grep -q 'too long and is dropped' "$work/err" || complain "a server that stood still has dropped workers"
    begin 3 $server --max-epoch 100000
    until_step 100
    suspend 9 0
    ends 5 30
    named 0
    begin 4 $server --servers 2 --max-epoch 100000
    until_step 100
    suspend 9 1
    ends 5 30
    named 1

    # Ranks that need each other.
    begin 3 $reduce --max-epoch 100000
    until_step 50
    suspend $longer 1
    ends 5 30
    named 1

    # Before the first step.
    begin 3 $reduce --max-epoch 100000
    sleep 0.1
    until [ -n "$(process_of "$dir" 1)" ] || ! kill -0 "$process" 2>/dev/null; do sleep 0.01; done
    kill -s STOP "$(process_of "$dir" 1)"
    ends 5 40
    grep -q '^nowait: MPI_Init has not ended' "$work/err" || named 1

    # Evaluations that take longer than the time-out; and all ranks at that time.
    slow="--model resnet20 --width 8 --max-epoch 10 --test-batch-size 1 --train-metrics --train-eval-batch-size 1"
    begin 3 --exchange server --communication async $slow
    until_step 150
    suspend $longer 0 1 2
    ends 0 120
    steps_are 200
    equal "evaluated epochs" 10 "$(grep -c '^{"record":"epoch".*"test_top1":[0-9]' "$dir/metrics.jsonl")"

    # One rank at the end, where all need each other: what was trained is saved, and whoever goes on has every epoch.
    begin 3 --exchange server --communication async $slow
    until_step 200
    suspend $longer 1
    ends 5 120
    named 1
    run 0 mpirun -np 3 "$NOWAIT" train --quiet --resume "$dir" --timeout 60
    equal "evaluated epochs" 10 "$(grep -c '^{"record":"epoch".*"test_top1":[0-9]' "$dir/metrics.jsonl")"

    # While a checkpoint is written, after every fifth update.
    begin 3 $reduce --max-epoch 40 --checkpoint-every 5
    until_file '"record":"checkpoint"' "$dir/metrics.jsonl"
    suspend $longer 0 1 2
    ends 0 60
    steps_are 280
done

echo "suspended ranks: $good of $count jobs ended as they should"
finish
