#!/bin/sh
# server.sh - the parameter server in one process: one worker is serial training bit for bit; delays are measured and bounded;
# workers that do not wait are as fast as they should be; runs resume and repeat exactly; dead workers are dropped.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"

common="--dataset synthetic --model lenet5 --batch-size 16 --limit 320 --max-epoch 2 --threads 1 --optimizer apam --lr 1e-3 --seed 3"
serve="--exchange server --communication"
trained() { # NAME OPTIONS...
    name=$1
    shift
    run 0 "$NOWAIT" train $common --quiet --run-dir "$runs/$name" "$@"
}
same() { equal "weights of $1 and $2" "$(weights "$1")" "$(weights "$2")"; }
number() { sed -n "s/^ *\"$2\": \([-0-9.e+]*\),*\$/\1/p" "$runs/$1/summary.json" | head -n 1; }
delay() { sed -n "/\"delays\": {/,/}/s/^ *\"$2\": \([-0-9.e+]*\),*\$/\1/p" "$runs/$1/summary.json" | head -n 1; }

# ---- equal to training alone ----
trained serial
trained alone-sync $serve sync
trained alone $serve async --in-flight 1
trained one $serve async --in-flight 1 --virtual 2
trained one-sync $serve sync --virtual 2
trained divided $serve async --in-flight 1 --servers 2 --virtual 3
for name in alone-sync alone one one-sync divided; do
    same serial $name
    equal "accuracy of $name" "$(number serial test_top1)" "$(number $name test_top1)"
    equal "steps of $name" 40 "$(number $name steps)"
done
is "$(delay one max) == 0" "one worker with one gradient under way has no delays"

# ---- little memory: the same bits where it is synchronous, and as many updates where not ----
trained four $serve sync --virtual 5
trained four-turns $serve sync --virtual 5 --server-memory 1
trained four-servers $serve sync --servers 2 --virtual 6 --server-memory 600000
trained four-async $serve async --virtual 5 --server-memory 1
same four four-turns
same four four-servers
equal "steps with little memory" 40 "$(number four-async steps)"
is "$(delay four-async max) == 0" "one gradient at a time has no delays"

# ---- several servers: what each epoch evaluates is what training alone has then, and nobody stops for it ----
trained serial-norms --model resnet20 --limit 64 --max-epoch 3
trained divided-norms $serve async --in-flight 1 --servers 2 --virtual 3 --model resnet20 --limit 64 --max-epoch 3
trained three $serve async --in-flight 1 --servers 3 --virtual 4
trained divided-sync $serve sync --servers 2 --virtual 3
trained halves $serve async --in-flight 1 --servers 2 --virtual 3 --method bf16 --eval-every 2 --max-epoch 5
same serial-norms divided-norms
equal "epochs with batch norm" "$(epochs serial-norms)" "$(epochs divided-norms)"
for name in divided three divided-sync; do
    same serial $name
    equal "epochs of $name" "$(epochs serial)" "$(epochs $name)"
done
for name in divided three; do equal "quiescent points of $name" 1 "$(quiescent $name)"; done
equal "quiescent points where a codec loses something" 1 "$(quiescent halves)"
equal "epochs in order" "1 2 3 4 5" "$(epochs halves | sed 's/.*"epoch":\([0-9]*\),.*/\1/' | paste -s -d ' ')"
equal "epochs without results" 1 "$(epochs halves | grep -c '"test_top1":null')"
for servers in 2 3; do
    trained several$servers $serve async --servers $servers --virtual 7 --max-epoch 5 --checkpoint-every 40
    equal "quiescent points of $servers servers" 3 "$(quiescent several$servers)"
    run 0 "$NOWAIT" replay "$runs/several$servers" --threads 1 --quiet --run-dir "$runs/replayed$servers"
    out_has 'same weights as summary.json'
    equal "epochs of a replay" "$(epochs several$servers)" "$(epochs replayed$servers)"
    trained part$servers $serve async --servers $servers --virtual 7 --max-epoch 5 --checkpoint-every 40 --max-steps 40
    run 0 "$NOWAIT" train --quiet --resume "$runs/part$servers" --max-steps 0
    same several$servers part$servers
    equal "the last epochs after a resume" "$(epochs several$servers | tail -n 3)" "$(epochs part$servers | tail -n 3)"
done

# ---- the initial model is evaluated once, also by those who repeat or resume the run ----
trained first-serial --evaluate-first
trained first $serve async --in-flight 1 --virtual 2 --evaluate-first --checkpoint-every 15
equal "epochs with the first" "$(epochs first-serial)" "$(epochs first)"
run 0 "$NOWAIT" replay "$runs/first" --threads 1 --quiet --run-dir "$runs/first-replayed"
equal "epochs of a replay with the first" "$(epochs first)" "$(epochs first-replayed)"
trained first-part $serve async --in-flight 1 --virtual 2 --evaluate-first --checkpoint-every 15 --max-steps 15
run 0 "$NOWAIT" train --quiet --resume "$runs/first-part" --max-steps 0
equal "epochs after a resume" "$(epochs first)" "$(epochs first-part)"

# ---- checkpoints of their own accord: synchronous ones after every epoch, else when each worker has computed 400 gradients ----
saved() { ls "$runs/$1/checkpoints" | sort -n | paste -s -d ' '; }
short="--limit 200 --batch-size 1 --max-epoch 3 --eval-every 3"
trained saved $serve async --in-flight 1 --virtual 2 $short
trained saved-twice $serve async --virtual 3 $short --max-epoch 6 --name-checkpoint "$work/newest"
equal "checkpoints of a synchronous server" "20 40" "$(saved one-sync)"
equal "checkpoints of one worker" "400 600" "$(saved saved)"
equal "checkpoints of two workers" "800 1200" "$(saved saved-twice)"
run 0 "$NOWAIT" replay "$runs/saved-twice" --threads 1 --quiet
out_has 'same weights as summary.json'
rm -r "$runs/saved/checkpoints/600" "$runs/saved/summary.json" # as if it was killed
trained saved-whole $short
run 0 "$NOWAIT" train --quiet --resume "$runs/saved"
same saved-whole saved
equal "epochs after it was killed" "$(epochs saved-whole)" "$(epochs saved)"

# ---- the best epoch's weights are kept, though ranks do not stop for them, with the statistics that they were evaluated with ----
for norms in average recalibrate; do
    best="--model resnet20 --width 8 --limit 96 --optimizer sgd --lr 0.05 --metric test_loss --bn-sync $norms"
    trained best-$norms $serve async --virtual 3 --max-epoch 5 $best
    epoch=$(number best-$norms best_epoch)
    found=$(epochs best-$norms | sed -n "s/.*\"epoch\":$epoch,.*\"test_loss\":\([^,]*\),.*/\1/p")
    run 0 "$NOWAIT" train --quiet --resume "$runs/best-$norms" --evaluate
    out_has "loss $(printf %.4f "$found") "
    err_lines 0
    run 0 "$NOWAIT" eval "$runs/best-$norms/best"
    out_has "loss $(printf %.4f "$found") "
    run 0 "$NOWAIT" eval "$runs/best-$norms"
    out_has "loss $(printf %.4f "$(number best-$norms test_loss)") "
done
is "$(number best-average best_epoch) < 5" "the rate is too high: the best epoch is not the last"
run 3 "$NOWAIT" train --quiet --resume "$runs/best-average/best"
err_has 'holds weights only, not the state of a run'
rm -r "$runs/best-average/best"
run 0 "$NOWAIT" train --quiet --resume "$runs/best-average" --evaluate
err_has 'is missing; using its newest'

# ---- exactly the updates asked for, delays measured and bounded; the same again, from its event log, and after a resume ----
trained many $serve async --virtual 6 --checkpoint-every 13
equal "updates" 40 "$(number many steps)"
equal "gradients" 40 "$(delay many count)"
out_has '^delays mean [0-9.]+, median [0-9]+, nine of ten at most [0-9]+, all at most [0-9]+$'
is "$(delay many max) >= 4" "five workers with two gradients under way have delays"
trained again $serve async --virtual 6 --checkpoint-every 13
same many again
run 0 "$NOWAIT" replay "$runs/many" --threads 1 --quiet
out_has 'same weights as summary.json'
trained part $serve async --virtual 6 --checkpoint-every 13 --max-steps 26
run 0 "$NOWAIT" train --quiet --resume "$runs/part" --max-steps 0
same many part
equal "delays after a resume" "$(delay many mean)" "$(delay part mean)"
trained bounded $serve async --virtual 6 --max-staleness 2
is "$(delay bounded max) == 2" "no gradient misses more than two updates"
trained bounded-several $serve async --virtual 8 --servers 3 --max-staleness 2
is "$(delay bounded-several max) == 2" "no gradient misses more than two updates of three servers"
trained dropped $serve async --virtual 6 --max-staleness 2 --staleness drop
is "$(delay dropped max) <= 2" "older gradients are dropped"
is "$(number dropped thrown_away) > 0 && $(number bounded thrown_away) == 0" "they are counted"
equal "updates in spite of drops" 40 "$(number dropped steps)"
for options in '--staleness weight --max-staleness 1' '--server-correction inverse' '--server-correction dc-asgd' \
    '--server-computes' '--servers 2' '--method bf16' '--optimizer sgd' \
    '--optimizer apam-paper --scheduler inverse-sqrt --lr 1e-4' '--optimizer adam' '--bn-sync recalibrate --model resnet20 --limit 64'; do
    rm -rf "$runs/variant"
    trained variant $serve async --virtual 4 $options
    is "$(delay variant count) > 0" "$options"
done

# ---- time: a slow worker holds up those who wait for it, and nobody else ----
# Between two updates, so that the beginning and the last gradients, for which all wait, do not count.
cat >"$work/cluster.yaml" <<END
nic: 9.4 Gbit/s
memory: unlimited
compute:
  forward: 30 ms
  backward: 70 ms
  update: 100 us
END
sed 's/^memory/ranks:\n  - rank: 3\n    slowdown: 4x\nmemory/' "$work/cluster.yaml" >"$work/slow.yaml"
clocked() { # NAME CLUSTER OPTIONS...
    name=$1 cluster=$2
    shift 2
    trained "$name" --max-epoch 100 --eval-every 1000 --lr 1e-6 --cluster "$work/$cluster.yaml" "$@"
}
at() { sed -n "s/^{\"record\":\"step\",\"step\":$2,.*\"virtual_seconds\":\([^,]*\),.*/\1/p" "$runs/$1/metrics.jsonl"; }
rate() { echo "($3 - $2) / ($(at "$1" "$3") - $(at "$1" "$2"))"; } # updates a second, from one update to another
clocked even cluster $serve async --virtual 21 --max-steps 500
clocked uneven slow $serve async --virtual 21 --max-steps 500
clocked even-sync cluster $serve sync --virtual 21 --max-steps 8
clocked uneven-sync slow $serve sync --virtual 21 --max-steps 8
clocked single cluster $serve async --virtual 2 --max-steps 60
is "$(rate uneven 50 450) >= 0.93 * $(rate even 50 450)" "a straggler costs its own share, 1 of 20"
is "$(rate uneven-sync 2 8) <= 0.35 * $(rate even-sync 2 8)" "all synchronous workers wait for it"
is "$(rate even 50 450) >= 19 * $(rate single 10 60)" "twenty workers are nearly twenty times as fast"

# Evaluating every epoch costs no time: six workers are as fast as without, and with several servers as with one, which has all
# parameters. A stop at the end of each epoch would cost a sixth.
for servers in 1 2 3; do
    for every in 1 1000000; do
        trained every$every-$servers $serve async --servers $servers --virtual $((6 + servers)) --cluster "$work/cluster.yaml" \
            --limit 160 --max-epoch 8 --eval-every $every
    done
    seconds=$(number every1-$servers virtual_seconds)
    is "$seconds <= 1.01 * $(number every1000000-$servers virtual_seconds)" "$servers servers go on while an epoch is evaluated"
    is "$seconds <= 1.01 * $(number every1-1 virtual_seconds)" "$servers servers are as fast as one"
done

# ---- a worker dies ----
cat >"$work/dies.yaml" <<END
faults:
  - {kind: die, rank: 2, at: step 3}
END
run 0 "$NOWAIT" train $common --run-dir "$runs/dead" $serve async --virtual 5 --timeout 5 --faults "$work/dies.yaml"
err_has 'rank 2 has sent nothing for too long and is dropped'
equal "updates without rank 2" 40 "$(number dead steps)"
run 0 "$NOWAIT" train --quiet --resume "$runs/dead" --max-epoch 3 --faults '' # and goes on with all five
equal "updates after that" 60 "$(number dead steps)"
run 0 "$NOWAIT" train $common --quiet --run-dir "$runs/dead-sync" $serve sync --virtual 5 --timeout 5 --faults "$work/dies.yaml"
run 0 "$NOWAIT" train $common --run-dir "$runs/dead-several" $serve async --servers 2 --virtual 6 --timeout 5 \
    --faults "$work/dies.yaml"
err_has 'rank 2 has sent nothing for too long and is dropped'
equal "updates of two servers without rank 2" 40 "$(number dead-several steps)"
sed 's/rank: 2/rank: 1/; s/step 3/20 ms/' "$work/dies.yaml" >"$work/server-dies.yaml"
run 5 "$NOWAIT" train $common --quiet --run-dir "$runs/dead-server" $serve async --servers 2 --virtual 6 --timeout 5 \
    --cluster "$work/cluster.yaml" --faults "$work/server-dies.yaml"
err_has 'rank 1'

# ---- APAM's synchronous batches are global ----
run 0 "$NOWAIT" train --defaults apam $common --run-dir "$runs/global" --exchange server --communication sync --virtual 5 --max-steps 3
err_has '1 server and 4 workers, synchronous; batches of 16 are divided among them.*: 4 images each.* a step is 16 images'
run 0 "$NOWAIT" train --defaults apam $common --run-dir "$runs/own" --exchange server --communication async --virtual 5 --max-steps 3
err_has '1 server and 4 workers, asynchronous, f32 on the wire; a step is 16 images'

# ---- refused ----
refuses() { # SENTENCE OPTIONS...
    sentence=$1
    shift
    run 2 "$NOWAIT" train $common --quiet "$@"
    err_has "$sentence"
    err_lines 1
}
refuses 'add --exchange server' --communication async
refuses 'add --exchange server' --in-flight 2
refuses 'add --exchange server' --server-memory 1000000
refuses 'nobody to compute' $serve async --servers 3 --virtual 3
refuses 'each worker has one gradient in flight' $serve sync --in-flight 2 --virtual 3
refuses 'no gradient is stale' $serve sync --max-staleness 2 --virtual 3
refuses '--optimizer lars' $serve async --optimizer lars --servers 2 --virtual 4
refuses '--clip-norm' $serve async --clip-norm 1 --servers 2 --virtual 4
refuses '--max-delay' $serve async --max-delay 3 --virtual 4
refuses 'computed in step, and cannot be continued by ranks that compute each at its own pace' --resume "$runs/serial" $serve async
finish
