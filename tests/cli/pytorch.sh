#!/bin/sh
# pytorch.sh - a run's checkpoint loads in PyTorch by name and gives the same answers; PyTorch's weights start a run here.
#   Skipped (77) where PyTorch is missing. What the formats hold in detail is torch_checkpoint.sh's business.
tests=$(cd "$(dirname "$0")" && pwd)
check="$tests/../../scripts/check_safetensors.py"
. "$tests/lib.sh"
. "$tests/runs.sh"
/usr/bin/python3 -c 'import torch, numpy' 2>/dev/null || {
    echo "skipped: needs python3-torch and python3-numpy"
    exit 77
}
export PYTHONDONTWRITEBYTECODE=1
options="--model resnet18 --width 8 --dataset synthetic --limit 40 --batch-size 20 --precision f32 --quiet"

# Ours, there.
run 0 "$NOWAIT" train $options --max-epoch 2 --run-dir "$runs/ours"
run 0 "$check" "$runs/ours" resnet18
out_has "parameters of resnet18 load in PyTorch"

# Theirs, here: evaluated, and as the beginning of a run whose first updates change nothing.
run 0 "$check" --write "$work/theirs.safetensors" resnet18 --width 8
run 0 "$NOWAIT" eval "$work/theirs.safetensors" $options --format json
theirs=$(sed -n 's/^ *"loss": \([^,]*\),$/\1/p' "$work/out")
run 0 "$NOWAIT" train $options --init "$work/theirs.safetensors" --lr 0 --max-steps 1 --run-dir "$runs/from-theirs"
run 0 "$check" "$runs/from-theirs" resnet18
run 0 /usr/bin/python3 -c 'import hashlib, importlib.util, sys
spec = importlib.util.spec_from_file_location("check", sys.argv[1])
check = importlib.util.module_from_spec(spec)
sys.argv[1:2] = []
spec.loader.exec_module(check)
tensors = check.read_safetensors(sys.argv[1])
model = check.model_for("resnet18", tensors)
model.load_state_dict(tensors)
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
assert digest == sys.argv[2], "other weights than PyTorch had"' "$check" "$work/theirs.safetensors" "$(weights from-theirs)"
run 0 "$NOWAIT" eval "$work/theirs.safetensors" $options --batch-size 8 --format json
is "($(sed -n 's/^ *"loss": \([^,]*\),$/\1/p' "$work/out") / $theirs - 1)^2 < 1e-9" "their weights, in other batches"

# The same answers for the same picture, through files that both read.
if /usr/bin/python3 -c 'import PIL' 2>/dev/null; then
    run 0 /usr/bin/python3 -c 'import numpy as np, sys
from PIL import Image
rng = np.random.RandomState(1)
for i in range(4): Image.fromarray(rng.randint(0, 256, (32, 32, 3), np.uint8)).save("%s/%d.png" % (sys.argv[1], i))' "$work"
    run 0 "$NOWAIT" predict "$runs/ours" "$work/0.png" "$work/1.png" "$work/2.png" "$work/3.png" --top 10 --format json
    cp "$work/out" "$work/answers"
    run 0 /usr/bin/python3 -c 'import importlib.util, json, sys
import numpy as np, torch
from PIL import Image
spec = importlib.util.spec_from_file_location("check", sys.argv[1])
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)
folder = check.newest(sys.argv[2])
state = check.check_manifest(folder)["state"]
tensors = check.read_safetensors(folder + "/model.safetensors")
model = check.model_for("resnet18", tensors)
model.load_state_dict(tensors)
model.eval()
mean = torch.tensor([state["mean%d" % c] for c in range(3)]).view(3, 1, 1)
deviation = torch.tensor([state["deviation%d" % c] for c in range(3)]).view(3, 1, 1)
for answer in json.load(open(sys.argv[3])):
    pixels = torch.tensor(np.array(Image.open(answer["image"])), dtype=torch.float32).permute(2, 0, 1) / 255
    with torch.no_grad():
        theirs = torch.softmax(model(((pixels - mean) / deviation)[None])[0], 0)
    for c in answer["classes"]:
        assert abs(float(theirs[c["class"]]) - c["probability"]) < 1e-4, (answer["image"], c, theirs)' \
        "$check" "$runs/ours" "$work/answers"
fi

finish
