#!/bin/sh
# trace.sh - trace.json and ledger.json of an invented run, whole and thinned out, as Python's json reads them.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"
python=/usr/bin/python3

mkdir "$work/run"
run 0 "$SAMPLE" "$work/run" 20 1000
out_has '^sent +255.4 kB  in 240 messages$'
out_has '^  values +240.0 kB +94.0%$'
run 0 $python "$tests/read_trace.py" "$work/run" 20 "$tests/../../docs/files.md"
out_has '^read 800 slices and 240 arrows of 20 steps$'
run 0 "$SAMPLE" "$work/run" 2000 300
run 0 $python "$tests/read_trace.py" "$work/run" 2000 "$tests/../../docs/files.md"
[ "$(wc -c <"$work/run/trace.json")" -lt 400000 ] || complain "trace.json is larger than 1200 events may be"

# One end of one arrow taken away must be noticed, or the reader proves nothing.
sed '0,/"ph":"s"/s//"ph":"t"/' "$work/run/trace.json" >"$work/other" && mv "$work/other" "$work/run/trace.json"
run 1 $python "$tests/read_trace.py" "$work/run" 2000 "$tests/../../docs/files.md"
err_has 'arrows'

finish
