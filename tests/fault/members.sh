#!/bin/sh
# members.sh - processes that average in pairs, of which some are suspended for longer than --timeout, or lost for good: the
# others go on, whoever is continued comes back, and all updates are made. TRIALS of each kind, 1 unless told.
. "$(dirname "$0")/../ranks/lib.sh"
trials=${TRIALS:-1}
timeout=2
longer=3.5
common="--dataset synthetic --model lenet5 --batch-size 16 --limit 320 --threads 1 --lr 1e-3 --seed 3 --timeout $timeout"
pairs="--exchange gossip --graph-topology ring --eval-every 100000"
count=0

begin() { # RANKS OPTIONS...: a job in the background
    n=$1
    shift
    count=$((count + 1))
    dir=$runs/job$count
    last="mpirun -np $n ... $*"
    mpirun $recovers -np "$n" "$NOWAIT" train $common $pairs --run-dir "$dir" "$@" >"$work/out" 2>"$work/err" &
    process=$!
}
until_file() { # PATTERN FILE
    tries=0
    while kill -0 "$process" 2>/dev/null && ! grep -Eqs "$1" "$2" && [ $tries -lt 3000 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
}
steps() { grep -c '^{"record":"step"' "$dir/metrics.jsonl" 2>/dev/null; }
until_steps() { until_file "^\\{\"record\":\"step\",\"step\":$1," "$dir/metrics.jsonl"; }
ends() { # CODE SECONDS
    tries=0
    while kill -0 "$process" 2>/dev/null && [ $tries -lt $(($2 * 20)) ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    kill -0 "$process" 2>/dev/null && complain "the job goes on after $2 seconds" && kill -s KILL "$process"
    wait "$process" 2>/dev/null
    got=$?
    [ "$got" = "$1" ] || complain "exit code $got, not $1"
    sleep 0.3
    [ -z "$(pgrep -f -- "--run-dir $dir\\b")" ] || complain "processes are left"
}
is_dropped() { # RANK
    until_file "rank $1 has sent nothing for too long and is dropped" "$work/err"
    err_has "rank $1 has sent nothing for too long and is dropped"
}
is_back() { # RANK
    until_file "rank $1 is back" "$work/err"
    err_has "rank $1 is back"
}
goes_on() { # all updates are told, each once; then the job is asked to stop, and does. [REPLAYED: exit code of a replay]
    until_steps $(($(steps) + 300))
    kill -s USR1 "$process"
    ends 4 30
    equal "records of updates in order" "$(steps)" \
        "$(sed -n 's/^{"record":"step","step":\([0-9]*\),.*/\1/p' "$dir/metrics.jsonl" | sort -n | tail -n 1)"
    ls "$dir/checkpoints" | grep -q '[0-9]' || complain "there is no checkpoint"
    run "${1:-0}" "$NOWAIT" replay "$dir" --threads 1 --quiet
}

trial=0
while [ $trial -lt "$trials" ]; do
    trial=$((trial + 1))
    recovers=

    # One for longer than the time-out, and two: others go on meanwhile.
    for way in "--apply-acid" "--pairing scheduled" "--pairing first-come"; do
        ranks=2
        [ "$way" = --apply-acid ] && ranks="1 3"
        begin 4 $way --max-epoch 100000 --checkpoint-every 1000000 # so that nobody misses one
        until_steps 200
        for rank in $ranks; do kill -s STOP "$(process_of "$dir" "$rank")"; done
        for rank in $ranks; do is_dropped "$rank"; done
        before=$(steps)
        sleep 1
        is "$(steps) > $before + 5" "others compute while ranks $ranks are suspended"
        for rank in $ranks; do kill -s CONT "$(process_of "$dir" "$rank")"; done
        for rank in $ranks; do is_back "$rank"; done
        goes_on
    done

    # All at once: nobody notices.
    begin 4 --max-epoch 100000 --checkpoint-every 1000000
    until_steps 200
    pids=$(for rank in 0 1 2 3; do process_of "$dir" "$rank"; done)
    kill -s STOP $pids
    sleep $longer
    kill -s CONT $pids
    goes_on
    ! grep -q 'too long and is dropped' "$work/err" || complain "a rank was dropped although all stood still"

    # A checkpoint is written while it is away: it joins the run that follows.
    begin 4 --max-epoch 100000 --checkpoint-every 400
    until_steps 200
    kill -s STOP "$(process_of "$dir" 3)"
    is_dropped 3
    at=$(steps)
    until_steps $((at + 900))
    kill -s CONT "$(process_of "$dir" 3)"
    is_back 3
    goes_on 3 # it has missed the first point at which all were quiescent, so there is nothing to replay

    # It stays away for good: the others make all updates, and say so.
    for signal in STOP KILL; do
        if [ $signal = KILL ]; then # or mpirun ends the job
            mpirun --version | grep -q 'Open MPI' || continue
            recovers=--enable-recovery
        fi
        begin 4 --max-epoch 30 --checkpoint-every 400 --apply-acid
        until_steps 100
        kill -s $signal "$(process_of "$dir" 1)"
        ends 0 120
        err_has "rank 1 has sent nothing for too long and is dropped"
        equal "updates after $signal" 600 "$(sed -n 's/^  "steps": \([0-9]*\),$/\1/p' "$dir/summary.json")"
        equal "lines of exchanges.tsv" 5 "$(wc -l <"$dir/exchanges.tsv")"
        run 0 "$NOWAIT" eval "$dir"
        recovers=
    done

    # Rank 0, which counts, cannot be missed.
    begin 4 --max-epoch 100000 --checkpoint-every 1000000
    until_steps 100
    kill -s STOP "$(process_of "$dir" 0)"
    ends 5 60
    err_has '^nowait: .*waited [0-9.]+ s for ranks? 0'
done
finish
