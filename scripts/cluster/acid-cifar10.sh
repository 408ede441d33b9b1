#!/bin/sh
# acid-cifar10.sh - ACiD's published job as a SLURM job: ResNet18 on CIFAR-10 with 32 workers that average in pairs on the
# exponential graph with continuous momentum, 8 workers on each of 4 nodes. Options are spelled as in the published job;
# more options for `nowait train` may follow.
#
#   scripts/cluster/acid-cifar10.sh --data-dir /scratch/data
#
# results.csv and com_logs/ come into the folder LOGS, the run's files into RUN. NODES and TASKS (workers of a node)
# change the size, SBATCH the command that submits. Submitted again with the same RUN, the job goes on where it was ended.
set -eu
cd "$(dirname "$0")/../.."
run=${RUN:-runs/acid-cifar10}
export RUN="$run"
# Two words of the published job mean something else here: epochs are counted over all workers by --defaults acid, and
# --path-logs is the folder of the tables alone.
exec ${SBATCH:-sbatch} --nodes="${NODES:-4}" --ntasks-per-node="${TASKS:-8}" --job-name=acid-cifar10 scripts/cluster/slurm.sbatch \
    --defaults acid --exchange gossip \
    --optimizer_name SGD --dataset_name CIFAR10 --model_name resnet18 \
    --n_epoch_if_1_worker 300 --batch_size 128 --lr 0.1 --momentum 0.9 --weight_decay 0.0005 \
    --use_linear_scaling --filter_bias_and_bn --normalize_grads \
    --rate_com 1 --graph_topology exponential --apply_acid \
    --path-logs "${LOGS:-$run}" "$@"
