#!/bin/sh
# pipeline.sh - two replicas of three stages as six processes; see pipeline.c.
. "$(dirname "$0")/environment.sh"

run 0 timeout -k 5 120 mpirun -n 6 "$PIPELINE" "$work/logs"
out_has '^12 cases, and one replayed$'
finish
