#!/bin/sh
# help.sh - help, version and misspelt commands.
. "$(dirname "$0")/lib.sh"

run 0 "$NOWAIT" --help
out_has 'usage: nowait COMMAND'
out_has '^  bench'
out_has '^  info'
err_empty

run 2 "$NOWAIT"
err_has 'usage'
out_empty

run 0 "$NOWAIT" --version
out_has '^nowait [0-9]+\.[0-9]+\.[0-9]+ \(.+\)$'

run 2 "$NOWAIT" bnech
err_has "no command 'bnech'; the nearest is 'bench'"
out_empty

for command in bench info; do
    run 0 "$NOWAIT" $command --help
    out_has 'usage: nowait'
    [ "$(wc -l <"$work/out")" -le 40 ] || complain "help does not fit a screen"
    awk 'length > 130 { exit 1 }' "$work/out" || complain "a line of the help is too long"
done

finish
