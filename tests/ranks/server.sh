#!/bin/sh
# server.sh - the parameter server over MPI: one worker is serial training, synchronous is what a virtual cluster computes, runs
# without order are replayed, stopped and resumed; a worker that is stopped is dropped and the others go on.
. "$(dirname "$0")/lib.sh"

common="--dataset synthetic --model lenet5 --batch-size 16 --limit 320 --max-epoch 2 --threads 1 --optimizer apam --lr 1e-3 --seed 3"
serve="--exchange server --communication"
served() { # RANKS NAME OPTIONS...
    n=$1 name=$2
    shift 2
    run 0 mpirun -np "$n" "$NOWAIT" train $common --quiet --run-dir "$runs/$name" "$@"
}
alone() { # NAME OPTIONS...
    name=$1
    shift
    run 0 "$NOWAIT" train $common --quiet --run-dir "$runs/$name" "$@"
}

alone serial
served 2 one $serve async --in-flight 1
served 3 divided $serve async --in-flight 1 --servers 2
served 4 three $serve async --in-flight 1 --servers 3
same_weights serial one
for name in divided three; do # and nobody stops at the end of an epoch, which is evaluated all the same
    same_weights serial $name
    equal "epochs of $name" "$(epochs serial)" "$(epochs $name)"
    equal "quiescent points of $name" 1 "$(quiescent $name)"
done
equal "accuracy" "$(value serial test_top1)" "$(value one test_top1)"

served 4 sync $serve sync
alone sync-virtual $serve sync --virtual 4
same_weights sync sync-virtual
served 3 shared $serve sync --server-computes
alone shared-virtual $serve sync --server-computes --virtual 3
same_weights shared shared-virtual

served 4 unequal $serve sync --non-iid-data --dirichlet-alpha 0.1
alone unequal-virtual $serve sync --non-iid-data --dirichlet-alpha 0.1 --virtual 4
same_weights unequal unequal-virtual
differ "weights with equal shares" "$(weights sync)" "$(weights unequal)"

# Without order: exactly the updates asked for, all ranks equal (compared when quiescent), and the same again from the event log.
served 4 async $serve async --checkpoint-every 11 --keep 100
equal "updates" 40 "$(value async steps)"
run 0 "$NOWAIT" replay "$runs/async" --threads 1 --quiet
out_has 'same weights as summary.json'
served 3 bf16 $serve async --method bf16 --server-computes
equal "updates" 40 "$(value bf16 steps)"
for servers in 2 3; do
    served 5 several$servers $serve async --servers $servers --max-epoch 4
    equal "quiescent points of $servers servers" 1 "$(quiescent several$servers)"
    equal "evaluated epochs of $servers servers" 4 "$(epochs several$servers | grep -c '"test_top1":[0-9]')"
    run 0 "$NOWAIT" replay "$runs/several$servers" --threads 1 --quiet --run-dir "$runs/replayed$servers"
    out_has 'same weights as summary.json'
    equal "epochs of a replay" "$(epochs several$servers)" "$(epochs replayed$servers)"
done
equal "bytes sent and received by several servers" "$(ledger several3 sent bytes)" "$(ledger several3 received bytes)"
equal "bytes and transport of several servers" "$(ledger several3 sent bytes)" "$(ledger several3 sent transport_bytes)"
for way in sent received; do
    equal "bytes and transport, $way" "$(ledger async $way bytes)" "$(ledger async $way transport_bytes)"
done
equal "bytes sent and received" "$(ledger async sent bytes)" "$(ledger async received bytes)"

# Stopped by a signal, resumed with as many ranks and with others.
mpirun -np 3 "$NOWAIT" train $common --quiet --max-epoch 2000 --run-dir "$runs/stopped" $serve async >/dev/null 2>"$work/err" &
job=$!
for i in $(seq 100); do
    [ -s "$runs/stopped/metrics.jsonl" ] && [ "$(grep -c '"step"' "$runs/stopped/metrics.jsonl")" -gt 30 ] && break
    sleep 0.2
done
kill -USR1 $job
wait $job
ls "$runs/stopped/checkpoints" | grep -q '[0-9]' || complain "there is no checkpoint after a signal"
run 0 mpirun -np 3 "$NOWAIT" train --quiet --resume "$runs/stopped" --max-epoch 3
run 0 mpirun -np 4 "$NOWAIT" train --quiet --resume "$runs/async" --max-epoch 3
equal "updates after a resume" 60 "$(value async steps)"
run 0 "$NOWAIT" train --quiet --resume "$runs/async" --virtual 3 --max-epoch 4
equal "updates after a resume in another world" 80 "$(value async steps)"

# Stopped while copies of several epochs wait to be evaluated, and killed in the middle of it: nothing is lost or told twice.
slow="--in-flight 1 --limit 160 --max-epoch 8 --test-batch-size 1 --train-metrics --train-eval-batch-size 1"
begin_slow() { # NAME OPTIONS...: until the last update
    name=$1
    shift
    mpirun -np 2 "$NOWAIT" train $common --quiet --run-dir "$runs/$name" $serve async $slow "$@" >/dev/null 2>"$work/err" &
    job=$!
    for i in $(seq 500); do
        grep -q '^{"record":"step","step":80,' "$runs/$name/metrics.jsonl" 2>/dev/null && break
        sleep 0.02
    done
}
served 2 judged $serve async $slow --evaluate-first
equal "epochs with that of the initial model" 9 "$(epochs judged | grep -c '"test_top1":[0-9]')"
begin_slow judged-stopped --evaluate-first
kill -USR1 $job
wait $job
copies=$(ls "$runs"/judged-stopped/checkpoints/*/judged*.safetensors 2>/dev/null | wc -l)
is "$copies >= 1 && $copies <= 4" "evaluations under way at the stop, with that of the end"
begin_slow judged-killed --checkpoint-every 45 --evaluate-first
kill -s KILL $(process_of "$runs/judged-killed" 0) $(process_of "$runs/judged-killed" 1)
wait $job 2>/dev/null
for name in judged-stopped judged-killed; do
    run 0 mpirun -np 2 "$NOWAIT" train --quiet --resume "$runs/$name"
    same_weights judged $name
    equal "epochs of $name" "$(epochs judged)" "$(epochs $name)"
done

# Where evaluations do not keep up, all wait until they do; nobody is lost meanwhile, and it can be repeated.
run 0 mpirun -np 3 "$NOWAIT" train $common --run-dir "$runs/behind" $serve async $slow --limit 320 --max-batches 2 --max-epoch 24 --timeout 1
err_has 'evaluations take longer than epochs, so training waits for them'
is "$(quiescent behind) > 2" "the ranks wait, since evaluations are slower"
equal "evaluated epochs" 24 "$(epochs behind | grep -c '"test_top1":[0-9]')"
run 0 "$NOWAIT" replay "$runs/behind" --threads 1 --quiet --run-dir "$runs/behind-replayed"
out_has 'same weights as summary.json'
equal "epochs of a replay" "$(epochs behind)" "$(epochs behind-replayed)"

# A worker that is stopped says nothing: it is dropped, named, and its work is done by the others.
cat >"$work/stops.yaml" <<END
faults:
  - {kind: stop, rank: 2, at: step 4}
END
run 0 timeout 60 mpirun -np 4 "$NOWAIT" train $common --run-dir "$runs/silent" $serve async --timeout 3 --faults "$work/stops.yaml"
err_has 'rank 2 has sent nothing for too long and is dropped'
equal "updates without rank 2" 40 "$(value silent steps)"

# A server that dies ends the job, and is named. Its launcher does not see it: what it started lives on.
if mpirun --version | grep -q 'Open MPI'; then
    for server in 0 1; do
        dir=$runs/dead$server
        last="a job of $((server + 1)) servers whose server $server is killed"
        timeout 120 mpirun -np 4 sh -c '"$@" || sleep 100' - "$NOWAIT" train $common --quiet --max-epoch 100000 \
            --eval-every 100000 --run-dir "$dir" $serve async --servers $((server + 1)) --timeout 2 >"$work/out" 2>"$work/err" &
        job=$!
        for i in $(seq 500); do
            [ "$(steps_of "$dir")" -gt 30 ] && break
            sleep 0.05
        done
        kill -s KILL "$(process_of "$dir" "$server")"
        wait $job
        equal "exit code" 5 $?
        err_has "^nowait: .*(waited [0-9.]+ s for rank $server:|rank $server, a server, has sent nothing for)"
        [ -z "$(process_of "$dir" 2)" ] || complain "processes are left"
    done
fi
finish
