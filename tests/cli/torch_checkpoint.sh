#!/bin/sh
# torch_checkpoint.sh - our checkpoints load in PyTorch by name, and PyTorch's weights load here; the logits agree.
#   $TOOL is checkpoint_tool. Skipped (77) where PyTorch is missing.
check="$(cd "$(dirname "$0")/../../scripts" && pwd)/check_safetensors.py"
. "$(dirname "$0")/lib.sh"

there_and_back() { # MODEL TYPE
    "$check" --write theirs.safetensors "$1" --width 16 --type "$2"
    [ $? != 77 ] || exit 77
    run 0 "$TOOL" copy "$1" 16 theirs.safetensors
    run 0 "$check" copy "$1" --equals theirs.safetensors --probe copy/probe.safetensors
    run 0 "$TOOL" ours "$1" 16
    run 0 "$check" ours "$1" --probe ours/probe.safetensors
    out_has "parameters of $1 load in PyTorch"
}

there_and_back resnet18 F32
rm -rf ours copy
run 1 "$TOOL" copy resnet9 16 theirs.safetensors
err_has "theirs.safetensors' does not fit the model 'resnet9': the tensor 'prep.conv.weight' is missing"
there_and_back resnet9 F16
rm -rf ours copy theirs.safetensors
finish
