#!/bin/sh
# info.sh - what the machine can do, tables of models, and drawings of them.
. "$(dirname "$0")/lib.sh"

run 0 "$NOWAIT" info
out_has 'generic +f32 +yes, self-test passed'
out_lacks 'FAILED|SIGILL'
out_has '^  yaml +(yes, for recipes|no: without recipes.*; Debian: libyaml-dev$)'
out_has '^  mpi +(yes, for several ranks: [A-Z]|no: without ranks .*; Debian: libopenmpi-dev)'

run 0 "$NOWAIT" info --models
for model in resnet9 resnet18 resnet110 petra-resnet50 vgg16_bn wideresnet28_10 lenet5; do out_has "^$model "; done
out_has '^he-out '

run 0 "$NOWAIT" info resnet18
out_has '^total +11173962 '
out_has '^layer2.0 +residual +230144 +128 x 16 x 16 '
run 0 "$NOWAIT" info resnet50 --image-size 224 --classes 1000
out_has '^total +25557032 '
run 0 "$NOWAIT" info ResNet50 --stem small --image-size=224 --classes 1000
out_has '^stem +conv +1856 +64 x 224 x 224 '
run 0 "$NOWAIT" info lenet5
out_has '^total +44426 '
err_empty

# A drawing: one box a stage beside the background, every shortcut of resnet20, whole.
svg=$work/resnet20.svg
run 0 "$NOWAIT" info resnet20 --graph "$svg"
err_has "drew resnet20 as $svg"
[ "$(grep -c '<rect' "$svg")" = 12 ] || complain "not 12 rectangles"
[ "$(grep -c 'class="arc"' "$svg")" = 9 ] || complain "not 9 shortcuts"
grep -q 'subsampled' "$svg" || complain "the shortcuts have no labels"
grep -q 'layer3.2' "$svg" || complain "a stage has no name"
[ "$(head -c 5 "$svg")" = "<svg " ] && [ "$(tail -n 1 "$svg")" = "</svg>" ] || complain "the drawing is not whole"

run 1 "$NOWAIT" info resnet20 --graph "$work/nowhere/x.svg"
err_has "nowhere/x.svg' cannot be written: No such file"
err_lines 1
run 2 "$NOWAIT" info resnet20 --stem tiny
err_has "--stem is auto\\|small\\|imagenet, not 'tiny'"

finish
