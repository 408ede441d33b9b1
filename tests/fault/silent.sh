#!/bin/sh
# silent.sh - a rank that is killed or stopped, by a script of faults or from outside, ends the job: soon, with an exit code
# that is not 0, naming it, and, where ranks live on, with what each of them knew. TRIALS of each kind, 1 unless told.
. "$(dirname "$0")/../ranks/lib.sh"
trials=${TRIALS:-1}
timeout=3
slack=5 # seconds beyond it
ended=0 named=0 dumped=0 worst=0

# begin DIR OPTIONS...: four ranks in the background that would train for hours.
begin() {
    last="mpirun in the background: $*"
    dir=$runs/$1
    shift
    mpirun -np 4 "$NOWAIT" train $world --max-epoch 100000 --timeout $timeout --run-dir "$dir" "$@" \
        >"$work/out" 2>"$work/err" &
    process=$!
}
state_of() { sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null; }
until_steps() {
    while kill -0 "$process" 2>/dev/null; do
        [ "$(cat "$dir/metrics.jsonl" 2>/dev/null | grep -c '^{"record":"step"')" -ge "$1" ] && return
        sleep 0.02
    done
}
now() { date +%s%N | sed 's/......$//'; } # milliseconds

# check_end RANK LIVING: the job has ended, and why. LIVING: how many ranks could write down what they knew.
check_end() {
    begun=$(now)
    while kill -0 "$process" 2>/dev/null; do
        if [ $(($(now) - begun)) -gt $(((timeout + slack) * 1000)) ]; then
            complain "the job goes on after $((timeout + slack)) seconds"
            kill -s KILL "$process" $(pgrep -f -- "--run-dir $dir\\b")
            break
        fi
        sleep 0.05
    done
    took=$(($(now) - begun))
    [ "$took" -gt "$worst" ] && worst=$took
    wait "$process" 2>/dev/null && complain "exit code 0 after a rank was lost"
    ended=$((ended + 1))
    sleep 0.2
    [ -z "$(pgrep -f -- "--run-dir $dir\\b")" ] || complain "processes are left"
    if [ "$2" = 0 ]; then # the launcher noticed; MPICH's names the process and its host
        grep -Eq "rank $1 .*signal 9" "$work/err" || grep -q 'PID [0-9]* RUNNING AT' "$work/out" &&
            named=$((named + 1)) || complain "rank $1 is not named"
        return
    fi
    grep -Eq "waited [0-9.]+ s for ranks? ([0-9]+(, | and ))*$1(,|:| and)" "$work/err" && named=$((named + 1)) ||
        complain "rank $1 is not named as the one that is waited for"
    for other in 0 1 2 3; do
        [ "$other" = "$1" ] && continue
        grep -q '"waits_for"' "$dir/dumps/rank$other.json" 2>/dev/null && dumped=$((dumped + 1)) ||
            complain "rank $other left no dump"
    done
}

trial=0
while [ "$trial" -lt "$trials" ]; do
    rank=$(((trial + 2) % 4)) step=$((3 + trial * 7 % 20))

    cat >"$work/die.yaml" <<END
faults:
  - {kind: die, rank: $rank, at: step $step}
END
    sed 's/die/stop/' "$work/die.yaml" >"$work/stop.yaml"
    begin "die$trial" --faults "$work/die.yaml"
    until_steps "$step"
    check_end "$rank" 0

    begin "kill$trial"
    until_steps "$step"
    kill -s KILL "$(process_of "$dir" "$rank")"
    check_end "$rank" 0

    begin "halt$trial" --faults "$work/stop.yaml"
    until_steps "$step"
    check_end "$rank" 3

    begin "stop$trial"
    until_steps "$step"
    kill -s STOP "$(process_of "$dir" "$rank")"
    check_end "$rank" 3
    trial=$((trial + 1))
done
echo "silent ranks: $ended of $((4 * trials)) jobs ended, the last after $worst ms with --timeout $timeout;" \
    "$named named their rank; $dumped of $((6 * trials)) living ranks left a dump"
finish
