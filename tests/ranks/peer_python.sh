#!/bin/sh
# peer_python.sh - nowait.py: a PyTorch loop over ranks of mpirun gives the trajectory of a plain loop (peer.py), and the
# example of the docs learns.
. "$(dirname "$0")/environment.sh"
python=/usr/bin/python3
$python -c 'import torch, numpy' 2>/dev/null || skip "there is no PyTorch (Debian package python3-torch; scripts/setup peers)"
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1

# loop RANKS CASE OPTIONS...
loop() {
    n=$1 folder=$work/loops/$2-$1
    shift 2
    mkdir -p "$folder"
    run 0 timeout 120 mpirun -np "$n" $python "$here/peer.py" run "$folder" "$@"
    out_has "^$n ranks: 40 gradients"
}
loop 3 dense --exchange allreduce
loop 2 delayed --exchange allreduce --delay 1
loop 3 topk --exchange allreduce --method topk --ratio 0.05 --memory error
loop 2 topk-gather --exchange allreduce --method topk --ratio 0.05 --memory error --collective gather
loop 2 update --way update --exchange allreduce --lr 0.05 --momentum 0.9 --weight-decay 1e-3
gossip="--exchange gossip --rate-com 2 --log-averagings $work/loops"
loop 3 gossip $gossip/gossip-3
loop 3 acid $gossip/acid-3 --apply-acid --graph-topology cycle
run 0 $python "$here/peer.py" check "$work"/loops/*
cat "$work/out"

run 0 timeout 120 mpirun -np 2 $python "$here/../../examples/train.py" --exchange allreduce --method qsgd
out_has "^2 ranks, 9[0-9][.0-9]* % right"
run 1 timeout 120 mpirun -np 2 $python "$here/../../examples/train.py" --exchange allreduce --metod qsgd
err_has "there is no option --metod here; the nearest is --method"
run 1 timeout 120 env NOWAIT_LIBRARY=/nowhere $python "$here/../../examples/train.py"
err_has "libnowait.so is not found; build it"
finish
