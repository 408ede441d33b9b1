#!/bin/sh
# data.sh - `nowait data`: what is said about datasets that are there, missing, wrong or unreachable.
. "$(dirname "$0")/lib.sh"
corpus=$(dirname "$0")
case $corpus in /*) ;; *) corpus=$OLDPWD/$corpus ;; esac
corpus=$corpus/../fuzz/corpus
set_dir=$work/sets

refused() { # EXIT_CODE PATTERN ARGUMENTS...
    code=$1 pattern=$2
    shift 2
    run "$code" "$NOWAIT" "$@"
    err_has "$pattern"
    err_lines 1
    out_empty
}

run 0 "$NOWAIT" data --help
out_has 'usage: nowait data fetch DATASET'
out_has '^  cifar10 '
out_has '^  synthetic '
[ "$(wc -l <"$work/out")" -le 40 ] || complain "help does not fit a screen"

refused 2 "say what to do" data
refused 2 "say what to do" data info
refused 2 "no 'nowait data inof'; the nearest is 'info'" data inof cifar10
refused 2 "no dataset 'cifar01'; the nearest is 'cifar10'" data info cifar01
refused 2 "'cinic10' has no address" data fetch cinic10
refused 2 "no option --data-dri here; the nearest is --data-dir" data info cifar10 --data-dri x
refused 3 "looked in .*/none, .*/none/cifar-10-batches-bin.*nowait data fetch cifar10 --data-dir" \
    data info cifar10 --data-dir "$work/none"

# A nameless server: one sentence, and nothing left but the folder that was asked for.
run 1 "$NOWAIT" data fetch cifar10 --data-dir "$set_dir" --url "gopher://127.0.0.1/"
err_has "cifar-10-binary.tar.gz: .*; check the network, or let 'nowait data fetch' take it from another address with --url"
[ -z "$(ls -A "$set_dir")" ] || complain "files were left behind"

# MNIST from the small files; converted, it is opened from the one file.
mkdir -p "$set_dir/mnist"
cp "$corpus/idx/images" "$set_dir/mnist/train-images-idx3-ubyte"
cp "$corpus/idx/labels" "$set_dir/mnist/train-labels-idx1-ubyte"
run 0 "$NOWAIT" data info mnist --data-dir "$set_dir"
out_has '^train +3 images, 0 to 1 a class'
out_has '^image +1 x 4 x 5'
out_has '^mean +0.1157'
err_empty
run 0 "$NOWAIT" data import mnist --data-dir "$set_dir"
out_has "mnist is now in .*/mnist.nwraw"
run 0 "$NOWAIT" data info mnist --data-dir "$set_dir"
out_has '^source .*/sets/mnist.nwraw'
printf 'x' | dd of="$set_dir/mnist.nwraw" bs=1 seek=4100 conv=notrunc 2>/dev/null
refused 3 "mnist.nwraw: the SHA-256 at offset 200 does not fit the pixels" data info mnist --data-dir "$set_dir"

# A full disk, as far as a test can have one: a limit on the size of files.
last="import with a limit on file sizes"
(
    trap '' XFSZ
    ulimit -f 1
    "$NOWAIT" data import mnist --data-dir "$set_dir" >"$work/out" 2>"$work/err"
) && complain "succeeded although nothing could be written"
err_has "cannot write '.*mnist.nwraw.*': File too large; raise the limit"
[ "$(ls -A "$set_dir" | wc -l)" = 2 ] || complain "files were left behind: $(ls -A "$set_dir")"

run 0 "$NOWAIT" data info synthetic
out_has '^train +10000 images, 1000 a class'

# The wrong file behind the right name: refused, and removed.
if command -v python3 >/dev/null 2>&1; then
    mkdir "$work/www"
    echo "this is no archive" >"$work/www/cifar-10-binary.tar.gz"
    (cd "$work/www" && exec python3 -u -m http.server --bind 127.0.0.1 0 >"$work/port" 2>/dev/null) &
    web=$!
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        port=$(sed -n 's/.*port \([0-9]*\).*/\1/p' "$work/port")
        [ -n "$port" ] && break
        sleep 0.3
    done
    run 3 env NOWAIT_MIRROR="http://127.0.0.1:$port/" "$NOWAIT" data fetch cifar10 --data-dir "$work/new"
    err_has "has MD5 [0-9a-f]+ instead of the published c32a1d4ab5d03f1284b67883e8d87530 and was removed"
    [ -z "$(ls -A "$work/new")" ] || complain "files were left behind"
    kill "$web"
fi

finish
