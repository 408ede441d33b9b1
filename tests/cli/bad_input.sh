#!/bin/sh
# bad_input.sh - one sentence that names cause and remedy, a non-zero exit, nothing left behind.
. "$(dirname "$0")/lib.sh"

refused() { # EXIT_CODE PATTERN ARGUMENTS...
    code=$1 pattern=$2
    shift 2
    run "$code" "$NOWAIT" "$@"
    err_has "$pattern"
    err_lines 1
    out_empty
}

refused 2 "say what to measure" bench
refused 2 "no benchmark 'tarin'" bench tarin
refused 2 "no option --bach-size here; the nearest is --batch-size" bench train --bach-size 3
refused 2 "no option --stpes here; the nearest is --steps" bench train --stpes=3
refused 2 "two dashes" bench train -z 3
refused 2 "'extra' is not understood" bench train extra
refused 2 "--batch-size is 0; it must be 1 to" bench train --batch-size 0
refused 2 "--batch-size is -5; it must be 1 to" bench train --batch-size -5
refused 2 "--batch-size takes a whole number, not '12x'" bench train --batch-size 12x
refused 2 "--batch-size takes a whole number, not ''" bench train --batch-size=
refused 2 "--batch-size is 99999999999999999999; it must be" bench train --batch-size 99999999999999999999
refused 2 "--batch-size needs a value" bench train --batch-size
refused 2 "--precision is f32\\|bf16\\|auto, not 'f16'" bench train --precision f16
refused 2 "--format is table\\|json, not ''" bench train --format=
refused 2 "--profile takes true or false, not 'maybe'" bench train --profile=maybe
refused 2 "no model 'resnet81'; the nearest is 'resnet18'" bench train --model resnet81
refused 2 "no model ''" bench train --model=
refused 2 "4000 threads" bench train --threads 4000
refused 1 "GiB.*batch size" bench train --batch-size 1048576
refused 2 "larger input" bench train --model resnet9 --image-size 4
refused 2 "no model 'resent18'; the nearest is 'resnet18'" info resent18
refused 2 "takes one model, not 2" info resnet9 resnet18

# What later versions will do is refused, not ignored.
refused 2 "^nowait: --remove-ctx-input --remove-ctx-param .* is not part of this version, which has the gradients of backprop" train --model revnet18 --dataset synthetic --remove-ctx-input --remove-ctx-param
refused 2 "apply-acid is for workers that average in pairs" train --dataset synthetic --apply_acid

run 2 env NOWAIT_ISA=avx3 "$NOWAIT" bench train
err_has "NOWAIT_ISA=avx3 is not an instruction set"
err_lines 1

# A result that cannot be written is a failure.
if [ -c /dev/full ]; then
    last="nowait info resnet9 > /dev/full"
    "$NOWAIT" info resnet9 >/dev/full 2>"$work/err" && complain "succeeded although nothing could be written"
    err_has "stdout"
fi

finish
