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

# Every command that is listed has help, with the same words, and can be completed.
run 0 "$NOWAIT" help completion bash
cp "$work/out" "$work/completion"
"$NOWAIT" --help | sed -n 's/^  \([a-z]*\) *\(.*\)/\1 \2/p' >"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 10 ] || complain "commands are missing"
while read -r command summary; do
    run 0 "$NOWAIT" help "$command"
    grep -qF "usage: nowait $command " "$work/out" && grep -qF " [options]   $summary" "$work/out" ||
        complain "help on $command does not say '$summary'"
    grep -q "^    $command) words='--help" "$work/completion" || complain "$command is not completed"
done <"$work/commands"

for command in bench info; do
    run 0 "$NOWAIT" $command --help
    out_has 'usage: nowait'
    [ "$(wc -l <"$work/out")" -le 40 ] || complain "help does not fit a screen"
    awk 'length > 130 { exit 1 }' "$work/out" || complain "a line of the help is too long"
done

finish
