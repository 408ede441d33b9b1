# lib.sh - sourced by the command's tests: runs a command, then checks its exit code and what it printed.
#   $NOWAIT is the program; each test runs in an empty folder of its own that must be empty afterwards.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/here"
cd "$work/here" || exit 1
failures=0

# run EXIT_CODE COMMAND...: stdout and stderr go to $work/out and $work/err.
run() {
    want=$1
    shift
    last="$*"
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" = "$want" ] || complain "exit code $got, not $want"
}
complain() {
    failures=$((failures + 1))
    echo "FAILED: $last"
    echo "  $1"
    sed 's/^/  out: /' "$work/out" | head -n 20
    sed 's/^/  err: /' "$work/err" | head -n 20
}
out_has() { grep -Eq -- "$1" "$work/out" || complain "stdout does not match '$1'"; }
err_has() { grep -Eq -- "$1" "$work/err" || complain "stderr does not match '$1'"; }
out_lacks() { ! grep -Eq -- "$1" "$work/out" || complain "stdout should not match '$1'"; }
out_empty() { [ ! -s "$work/out" ] || complain "stdout should be empty"; }
# Lines of stderr that match, without what is said wherever NOWAIT_ISA asks for bf16 that is not AMX's, or ranks are more
# than CPUs.
err_count() {
    grep -Ev 'there is no AMX here: activations are stored in bf16|warning: [0-9]+ ranks on .* share' "$work/err" |
        grep -Ec -- "${1:-^}"
}
err_empty() { [ "$(err_count)" = 0 ] || complain "stderr should be empty"; }
err_lines() { [ "$(err_count)" = "$1" ] || complain "stderr should have $1 line(s)"; }

finish() {
    last="everything"
    [ -z "$(ls -A .)" ] || complain "files were left behind: $(ls -A . | tr '\n' ' ')"
    [ "$failures" = 0 ] || exit 1
    echo "all passed"
}
