# mpi.sh - sourced by tests of jobs that are disturbed, started wrongly, or launched; see environment.sh.
. "$(dirname "$0")/../ranks/environment.sh"

case $(mpirun --version) in
*"Open MPI"*) mpi=openmpi ;;
*) mpi=mpich ;;
esac
job="$tiny --exchange allreduce --threads 1 --quiet"

# ranks EXIT_CODE N DIR OPTIONS...: a tiny job, never longer than a minute.
ranks() {
    code=$1 count=$2 dir=$3
    shift 3
    run "$code" timeout -k 5 60 mpirun -n "$count" "$NOWAIT" train $job --run-dir "$runs/$dir" "$@"
}
# says N PATTERN: so many lines of the job's ranks match, and no others speak.
says() {
    equal "lines that match '$2'" "$(grep -Ec -- "$2" "$work/err")" "$1"
    equal "messages of the ranks" "$(err_count '^nowait: ')" "$1"
}

# A job that lasts long enough to be disturbed, and its weights when nothing disturbs it.
long="--limit 2000 --max-steps 300 --checkpoint-every 50"
undisturbed() { # DIR
    run 0 "$NOWAIT" train $job $long --run-dir "$runs/$1" --virtual 2
}
# await RANK DIR STEP: waits, for half a minute at most, until the job $process has come to that step; $pid is then the rank's.
await() {
    tries=0 pid=none
    until [ "$(steps_of "$runs/$2")" -ge "$3" ]; do
        tries=$((tries + 1))
        kill -0 $process && [ $tries -lt 1500 ] || { complain "the job did not come to step $3"; return 1; }
        sleep 0.02
    done
    pid=$(process_of "$runs/$2" "$1")
}
log_has() { grep -Eq -- "$2" "$runs/$1/launch.log" || complain "launch.log has no '$2': $(cat "$runs/$1/launch.log")"; }
nobody_left() { ! pgrep -f "run-dir=$runs/$1" >/dev/null 2>&1 || complain "processes were left: $(pgrep -af "run-dir=$runs/$1")"; }
