#!/bin/sh
# options.sh - recipes, composed files, resolved options, completion and the manual page, as a user meets them.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/lib.sh"

# Without libyaml, files are refused and nothing else can be tried.
"$NOWAIT" help config >/dev/null 2>"$work/err" || if grep -q libyaml "$work/err"; then
    echo "skipped: built without libyaml"
    exit 77
fi

run 0 "$NOWAIT" help config
out_has '^# run: runs/demo$'
out_has '^dataset: fashion-mnist  # .*recipes/demo.yaml:[0-9]+$'
err_has 'recipe demo'

run 0 "$NOWAIT" help config --recipe cifar10-fast --max-epoch 6 --lr=0.5
out_has '^max_epoch: 6  # command line$'
out_has '^lr: 0.5  # command line$'
out_has '^lr_knots: "0:0,1.25:0.4,6:0"  # .*cifar10-fast.yaml:[0-9]+, scaled from 24 to 6 epochs$'

# A command line of the PETRA README.
run 0 "$NOWAIT" help config --dataset cifar10 --model revnet18 --max-epoch 300 --batch-size 64 --lr 0.1 \
    --weight-decay 5e-4 --no-bn-weight-decay --nesterov --warm-up 5 --goyal-lr-scaling --lr-decay-milestones 150 225 \
    --accumulation-steps 2 --accumulation-averaging --synchronous --store-vjp --remove-ctx-input --remove-ctx-param \
    --use-wandb --ngpus 2 -p 50
out_has '^algorithm: s1 '
out_has '^decay_filter: no-norm-bias '
out_has '^lr_decay_milestones: \[150,225\] '
err_has '^nowait: warning: --no-bn-weight-decay, --synchronous, .*--ngpus are each .* reference code .petra.* add --defaults petra$'
err_has '^nowait: --ngpus has no effect: this program has no GPU code$'
err_lines 3

run 0 "$NOWAIT" help config --configs configs/cifar/resnet20.py configs/dgc/wm5.py --configs.train.num_epochs 500 \
    --suffix .e500
out_has '^# run: runs/\[cifar.resnet20\+dgc.wm5\].e500.np1$'
out_has '^max_epoch: 500  # --configs.train.num_epochs$'
out_has '^t_max: 0 '
out_has '^ratio_warm_up: 5 '

run 0 env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=8 "$NOWAIT" help config --configs configs/cifar/resnet20.py
out_has '^# run: runs/cifar.resnet20.np8$'

run 2 "$NOWAIT" help config --configs configs/cifar/resnet20.py --configs.train.num_epoch 500
err_has "no key 'train.num_epoch'; the nearest is 'train.num_epochs'"
err_lines 1
out_empty
run 2 "$NOWAIT" help config --recipe cifar10-fats
err_has "the nearest is 'cifar10-fast'"
printf 'lr: 0.1\nmomentun: 0.9\n' >"$work/bad.yaml"
run 3 "$NOWAIT" help config --recipe "$work/bad.yaml"
err_has "bad.yaml:2:1: there is no key 'momentun'; the nearest is 'momentum'"
err_lines 1

# The resolved options are a recipe of their own.
"$NOWAIT" help config --recipe petra/cifar10-resnet18-backprop --shorten 20 2>/dev/null >"$work/first.yaml"
run 0 "$NOWAIT" help config --recipe "$work/first.yaml"
sed 's/  #.*//' "$work/first.yaml" | grep -v '^#' >"$work/a"
sed 's/  #.*//' "$work/out" | grep -v '^#' >"$work/b"
cmp -s "$work/a" "$work/b" || complain "reading config.yaml again gives other options"

run 0 "$NOWAIT" help recipes
out_has '^petra/cifar10-resnet18-backprop$'
[ "$(wc -l <"$work/out")" -ge 35 ] || complain "recipes are missing"

# The reference in docs/ is what the table says.
run 0 "$NOWAIT" help options
cmp -s "$work/out" "$root/docs/options.md" || complain "docs/options.md is old: make it with 'nowait help options'"

run 0 "$NOWAIT" help man
out_has '^\.TH NOWAIT 1'
if command -v groff >/dev/null 2>&1; then
    groff -man -Tutf8 -ww "$work/out" >/dev/null 2>"$work/err"
    err_empty
fi

run 0 "$NOWAIT" help completion bash
cp "$work/out" "$work/completion"
if command -v bash >/dev/null 2>&1; then
    run 0 bash -c ". '$work/completion'; COMP_WORDS=(nowait train --sched); COMP_CWORD=2; _nowait; echo \${COMPREPLY[@]};
                   COMP_WORDS=(nowait train --pad-mode re); COMP_CWORD=3; _nowait; echo \${COMPREPLY[@]};
                   COMP_WORDS=(nowait in); COMP_CWORD=1; _nowait; echo \${COMPREPLY[@]}"
    out_has '^--scheduler '
    out_has '^reflect$'
    out_has '^info$'
fi
run 0 "$NOWAIT" help completion zsh
out_has '^#compdef nowait$'
cp "$work/out" "$work/completion"
if command -v zsh >/dev/null 2>&1; then run 0 zsh -n "$work/completion"; fi
run 2 "$NOWAIT" help completion fish
err_has "bash"

for topic in '' run model data training optimizer schedule checkpoint gradient exchange codec elsewhere; do
    run 0 "$NOWAIT" help train $topic
    [ "$(wc -l <"$work/out")" -le 40 ] || complain "help does not fit a screen"
done
run 2 "$NOWAIT" help train optimzer
err_has "the nearest is 'optimizer'"
run 2 "$NOWAIT" help tarin
err_has "the nearest is 'train'"

finish
