#!/bin/sh
# mpirun.sh - train on several machines with mpirun, supervised: when a rank is lost, the job goes on from its newest
# checkpoint. Every option behind the script's name goes to `nowait train`.
#
#   RANKS=4 HOSTS=hosts scripts/cluster/mpirun.sh --recipe cifar10-fast --exchange allreduce --run-dir runs/cluster
#
# HOSTS is a file like scripts/cluster/hosts.example; without it all ranks run on this machine. What must be the same on
# every machine: the program under the same path, the data, and the run's directory (a shared file system).
set -eu
ranks=${RANKS:-2}
hosts=${HOSTS:-}

# Of a machine with several networks (a container bridge, a VPN), Open MPI may choose one that leads nowhere, and hang.
# NETWORK says which one connects the machines: an interface (eth0) or a subnet (10.1.0.0/16).
network=${NETWORK:-}
extra=
[ -z "$network" ] || extra="--mca btl_tcp_if_include $network --mca oob_tcp_if_include $network"

# Threads of each rank: as many as its share of the machine's CPUs. Results do not depend on it.
[ -z "${THREADS:-}" ] || set -- --threads "$THREADS" "$@"

exec nowait launch -n "$ranks" ${hosts:+--hosts "$hosts"} ${extra:+--launcher-args "$extra"} \
    --max-restarts "${RESTARTS:-3}" -- train "$@"
