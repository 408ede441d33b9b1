#!/bin/sh
# replay.sh - runs of several ranks, over MPI and virtual, with resumes and kills, are replayed in one process to the same
# weights; logs that were changed are refused.
. "$(dirname "$0")/../cli/lib.sh"

runs=$work/runs
export TMPDIR="$work/temporary"
mkdir "$TMPDIR"
common="--dataset synthetic --model lenet5 --batch-size 16 --limit 200 --threads 1 --exchange allreduce --seed 3 --quiet"
replayed() { # RUN FROM TO WHOSE [options]: the weights are those of WHOSE
    name=$1 from=$2 to=$3 whose=$4
    shift 4
    run 0 "$NOWAIT" replay "$runs/$name" --threads 1 --quiet "$@"
    out_has "^replayed steps $from to $to of $runs/$name, [0-9]+ ranks: same weights as $whose, weights [0-9a-f]{16}\.\.\.$"
}
hash_of() { sed -n 's/.*"weights_sha256": "\([0-9a-f]*\)".*/\1/p' "$runs/$1/summary.json"; }
refuses() { # CODE SENTENCE RUN [options]
    code=$1 sentence=$2 name=$3
    shift 3
    run "$code" "$NOWAIT" replay "$runs/$name" --threads 1 --quiet "$@"
    err_has "$sentence"
    out_empty
}
overwrite() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; } # FILE BYTE TEXT

# A cluster on which messages come in another order every time.
cat >"$work/noisy.yaml" <<END
noise: lognormal 0.3
nic: 940 Mbit/s
link:
  latency: 300 us
  jitter: exponential 400 us
END

# ---- virtual, with a resume in the middle; delayed updates ----
virtual="--virtual 3 --cluster $work/noisy.yaml --delay 1 --bucket-bytes 20000 --checkpoint-every 6 --keep 100"
run 0 "$NOWAIT" train $common $virtual --max-steps 20 --run-dir "$runs/virtual"
replayed virtual 1 20 summary.json
run 0 "$NOWAIT" train $common $virtual --world-size 3 --max-steps 31 --resume "$runs/virtual"
replayed virtual 1 31 summary.json
equal_hash=$(hash_of virtual)
replayed virtual 1 31 summary.json --run-dir "$runs/copy"
[ "$(hash_of copy)" = "$equal_hash" ] || complain "the copy has other weights"
replayed virtual 1 24 'the checkpoint of that step' --steps 24
replayed virtual 1 20 'the checkpoint of that step' --steps 23
replayed virtual 25 31 summary.json --from "$runs/virtual/checkpoints/24"
replayed virtual 31 31 summary.json --from "$runs/virtual/checkpoints/30"
refuses 2 'holds a run already' virtual --run-dir "$runs/copy"
refuses 2 'first were at step 5, not by step 2' virtual --steps 2
refuses 3 'no checkpoint' virtual --from "$runs/virtual/checkpoints/7"
run 0 "$NOWAIT" replay "$runs/virtual" --show
out_has '^part from step 0 to 20: 3 ranks, exchange allreduce, codec none, '
out_has '^part from step 20 to 31: '
out_has '^rank 2, [0-9]+: message [0-9]+ from rank 1 at [0-9]+ ns$'

# ---- killed, and then resumed ----
"$NOWAIT" train $common --virtual 3 --cluster "$work/noisy.yaml" --max-epoch 100000 --checkpoint-every 7 \
    --run-dir "$runs/killed" >/dev/null 2>&1 &
process=$!
tries=0
while [ ! -e "$runs/killed/checkpoints/14" ] && [ ! -e "$runs/killed/checkpoints/21" ] && [ $tries -lt 600 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
kill -9 $process
wait $process 2>/dev/null
run 0 "$NOWAIT" replay "$runs/killed" --threads 1 --quiet
err_has 'the run was killed or failed( and left a torn event log)?; its event log is complete up to step [0-9]+, where all ranks were quiescent'
out_has '^replayed steps 1 to '
at=$(ls "$runs/killed/checkpoints" | sort -n | tail -n 1)
run 0 "$NOWAIT" train --resume "$runs/killed" --world-size 3 --quiet --max-steps $((at + 5))
replayed killed 1 $((at + 5)) summary.json

# ---- over MPI ----
if command -v mpirun >/dev/null && ! "$NOWAIT" info 2>/dev/null | grep -q 'without MPI'; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
        OMPI_MCA_hwloc_base_binding_policy=none
    run 0 mpirun -np 4 "$NOWAIT" train $common --bucket-bytes 20000 --max-steps 15 --checkpoint-every 6 \
        --run-dir "$runs/mpi"
    replayed mpi 1 15 summary.json
    replayed mpi 1 15 summary.json --threads 2
    run 0 mpirun -np 4 "$NOWAIT" train --resume "$runs/mpi" --world-size 4 --max-steps 22 --quiet
    replayed mpi 1 22 summary.json
    log=$runs/mpi/event-log/15/rank2.log
else
    log=$runs/virtual/event-log/20/rank0.log
fi

# ---- logs that are not what was recorded ----
run=$(basename "$(dirname "$(dirname "$(dirname "$log")")")")
cp "$log" "$work/log"
overwrite "$log" 300 XXXX
refuses 3 'rank[02]\.log is damaged: the block at byte [0-9]+ is not what was written; restore it from a copy' "$run"
cp "$work/log" "$log"
overwrite "$log" 7 '\001'
refuses 3 'an event log of version 1, and this build replays version 3' "$run"
head -c "$(($(wc -c <"$work/log") - 3))" "$work/log" >"$log" # torn: the end is missing
run 0 "$NOWAIT" replay "$runs/$run" --threads 1 --quiet
err_has 'killed or failed and left a torn event log'
rm "$log"
refuses 3 'is missing|has no event log|part of the run' "$run" --from "$runs/$run/checkpoints/18"
cp "$work/log" "$log"
config=$(dirname "$log")/config.yaml
cp "$config" "$work/config"
echo '# a note' >>"$config"
refuses 3 'config.yaml was changed since the run was recorded' "$run"
cp "$work/config" "$config"
sed -i 's/"weights_sha256": "..../"weights_sha256": "0000/' "$runs/$run/summary.json"
refuses 1 'the weights are [0-9a-f]{16}\.\.\., but summary.json says 0000' "$run"
if ! grep -q '"isa": "generic"' "$runs/$run/summary.json"; then
    NOWAIT_ISA=generic refuses 1 'the run used the instruction set .* and this would use generic in f32' "$run"
fi

[ -z "$(ls "$TMPDIR" | grep nowait)" ] || complain "temporary folders were left"

# ---- a run that went back to checkpoints ----
run 0 "$NOWAIT" train $common --virtual 2 --precision f32 --lr 8 --checkpoint-every 2 --on-divergence rollback --divergence-factor 1.3 \
    --max-rollbacks 9 --max-steps 20 --run-dir "$runs/back"
grep -q '"fault":"rollback"' "$runs/back/metrics.jsonl" || complain "it did not go back"
run 0 "$NOWAIT" replay "$runs/back"
out_has "^replayed steps 1 to 20 of $runs/back, 2 ranks: same weights as summary.json"

# ---- runs without an event log ----
run 0 "$NOWAIT" train $common --virtual 2 --no-record-events --max-steps 2 --run-dir "$runs/none"
[ ! -e "$runs/none/event-log" ] || complain "an event log was written although none was asked for"
refuses 3 'has no event log' none
refuses 3 "there is no run '" nowhere
run 2 "$NOWAIT" replay
err_has "takes one run's directory, not 0"
run 0 "$NOWAIT" replay --help
out_has 'usage: nowait replay RUN'

finish
