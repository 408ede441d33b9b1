#!/bin/sh
# pinned.sh - short runs end with the weights that they ended with before (runs.txt); with `--record`, writes them down.
#   pinned.sh alone|mpi: those of one process, or those under mpirun. Runs that others continue come first in the list.
part=$1
folder=$(cd "$(dirname "$0")" && pwd)
[ "$part" != mpi ] || . "$folder/../ranks/environment.sh"
if [ "$part" != mpi ]; then
    . "$folder/../cli/lib.sh"
    . "$folder/../cli/runs.sh"
fi
export NOWAIT_ISA=generic
common="--dataset synthetic --model lenet5 --batch-size 8 --limit 160 --lr 0.02 --precision f32 --threads 1 --seed 3
    --max-epoch 9 --eval-every 1000 --quiet"
server="--exchange server --communication async --optimizer apam --lr 1e-3 --max-epoch 2"

# train_one NAME WHERE CONTINUES OPTIONS...
train_one() {
    name=$1 where=$2 continues=$3
    shift 3
    case $where in
    alone) set -- "$NOWAIT" train $common "$@" ;;
    virtual*) set -- "$NOWAIT" train $common --virtual "${where#virtual}" "$@" ;;
    mpi*) set -- mpirun -np "${where#mpi}" "$NOWAIT" train $common "$@" ;;
    esac
    if [ "$continues" != - ]; then
        cp -r "$runs/${continues%@*}" "$runs/$name"
        case $continues in
        *@*) find "$runs/$name/checkpoints" -mindepth 1 -maxdepth 1 ! -name "${continues#*@}" -exec rm -r {} + ;;
        esac
        ranks=$(echo "$where" | sed 's/^alone$/1/; s/^[a-z]*//')
        run 0 "$@" --world-size "$ranks" --resume "$runs/$name"
    else
        run 0 "$@" --run-dir "$runs/$name"
    fi
}

cd "$folder" || exit 1 # so that cluster files are found
while read -r name where continues hash options; do
    case $name in '#'* | '') continue ;; esac
    case $where in mpi*) [ "$part" = mpi ] || continue ;; *) [ "$part" != mpi ] || continue ;; esac
    case $options in
    SERVER*) options="$server ${options#SERVER}" ;;
    *) [ "$where" = alone ] || options="--exchange allreduce $options" ;;
    esac
    train_one "$name" "$where" "$continues" $options </dev/null
    now=$(weights "$name" | cut -c 1-16)
    if [ "${2:-}" = --record ]; then
        sed -i -E "s/^($name +[^ ]+ +[^ ]+ +)[^ ]+ */\1$now  /" "$folder/runs.txt"
    elif [ "$now" != "$hash" ]; then
        complain "$name ends with weights $now, not $hash"
    fi
done <"$folder/runs.txt"
cd "$work/here" || exit 1
finish
