#!/bin/sh
# gossip.sh - ranks that average pairs of vectors at their own pace while they compute (gossip.c): one is suspended and the
# others go on, they stop, resume and are replayed; a rank that all need and that stays away is noticed.
. "$(dirname "$0")/environment.sh"

run 0 timeout 60 mpirun -np 4 "$GOSSIP" run "$work/run"
cat "$work/out"
run 0 "$GOSSIP" replay "$work/run"
cat "$work/out"
run 5 timeout 60 mpirun -np 4 "$GOSSIP" lost "$work/lost"
err_has '^gossip: .*waited [0-9.]+ s for ranks? 0'
finish
