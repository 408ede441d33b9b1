#!/bin/sh
# namespaces.sh - two machines, as far as one kernel can play them: two network namespaces with names of their own, joined by
# a cable (veth). All addresses are inside them; a script that enters the second takes the place of ssh. Messages have to
# cross the cable, and the weights are those of two simulated ranks; then the rank on the other machine, and the machine, are
# lost under `nowait launch`.
. "$(dirname "$0")/mpi.sh"
for tool in ip unshare; do command -v $tool >/dev/null || skip "there is no $tool (Debian: iproute2, util-linux)"; done
left=nowait-left-$$ right=nowait-right-$$

leave() {
    for name in $left $right; do
        ip netns pids $name 2>/dev/null | xargs -r kill -KILL
        ip netns del $name 2>/dev/null
    done
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 1' INT TERM HUP
ip netns add $left 2>"$work/err" && ip netns add $right 2>"$work/err" &&
    ip netns exec $right unshare --uts true 2>"$work/err" ||
    skip "the kernel or a lack of rights does not allow network namespaces: $(head -n 1 "$work/err")"
ip -n $left link add name cable type veth peer name cable netns $right 2>"$work/err" ||
    skip "the kernel has no veth: $(head -n 1 "$work/err")"
ip -n $left address add 10.77.0.1/24 dev cable
ip -n $right address add 10.77.0.2/24 dev cable
for name in $left $right; do
    ip -n $name link set lo up
    ip -n $name link set cable up
done
for name in $left $right; do # the kernel takes up to a second to see that both ends are plugged in
    for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        ip -n $name link show cable | grep -q 'state UP' && break
        sleep 0.1
    done
done

# Called like ssh: options, the host, the words of a command for a shell there.
cat >"$work/enter" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
[ "\$1" = 10.77.0.2 ] || { echo "enter: there is no host \$1" >&2; exit 1; }
shift
exec ip netns exec $right unshare --uts sh -c 'hostname right; eval "\$1"' sh "\$*"
END
chmod +x "$work/enter"
on_left() { ip netns exec $left unshare --uts sh -c 'hostname left; exec "$@"' sh timeout -k 5 60 "$@"; }
carried() { ip netns exec $left cat /sys/class/net/cable/statistics/tx_bytes /sys/class/net/cable/statistics/rx_bytes |
    awk '{ sum += $1 } END { printf "%d\n", sum }'; }

# Without this both MPIs would find that the "machines" share memory.
if [ $mpi = openmpi ]; then
    printf '10.77.0.1 slots=1\n10.77.0.2 slots=1\n' >"$work/hosts"
    hosts="--hostfile $work/hosts"
    network="--mca plm_rsh_agent $work/enter --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24
        --mca oob_tcp_if_include 10.77.0.0/24"
else
    printf '10.77.0.1:1\n10.77.0.2:1\n' >"$work/hosts"
    hosts="-f $work/hosts"
    network="-launcher ssh -launcher-exec $work/enter -iface cable -genv UCX_TLS tcp,self -genv UCX_NET_DEVICES cable"
fi

# ---- the same weights, over the cable ----
train virtual --exchange allreduce --threads 1 --max-steps 20 --virtual 2
before=$(carried)
run 0 on_left mpirun -n 2 $hosts $network "$NOWAIT" train $job --run-dir "$runs/apart" --max-steps 20
equal "weights of two machines" "$(weights apart)" "$(weights virtual)"
is "$(carried) - $before >= $(value apart bytes_sent)" "bytes that crossed the cable, and bytes sent"

# ---- the other machine's rank is lost; and the machine, as far as mpirun can tell: its daemon there ----
undisturbed whole
lose() { # DIR rank|daemon
    last="nowait launch over two machines, without $2 1"
    on_left "$NOWAIT" launch -n 2 --hosts "$work/hosts" --launcher-args "$(echo $network)" --restart-delay 0 -- \
        train $job $long --timeout 20 --run-dir "$runs/$1" >"$work/out" 2>"$work/err" &
    process=$!
    await 1 "$1" 60
    [ "$2" = rank ] || pid=$(sed 's/.*) . //; s/ .*//' "/proc/$pid/stat") # its parent
    kill -KILL "$pid"
    wait $process
    equal "exit code" "$?" 0
    err_has '^nowait launch: restarting from step [1-9][0-9]* '
    equal "weights after the restart" "$(weights "$1")" "$(weights whole)"
    nobody_left "$1"
}
lose lost rank
err_has '^nowait launch: a rank died of signal (9|15) '
if [ $mpi = openmpi ]; then
    lose gone daemon
    err_has '^nowait launch: a machine was lost, as exit code 205 tells$'
fi
finish
