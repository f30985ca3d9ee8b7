# shellcheck shell=bash
# cluster.sh - a Slurm cluster of four nodes on this machine, for one test. Sourced first, with the script's arguments:
# starts the script again in namespaces of its own, where it is process 1, and where nothing outlives it.
#
# A node is a network namespace with an address on a bridge, and a host name. The controller and the script are on the
# host `control`. Every node has 4 CPUs and two GPUs, which are not real.
set -u
PATH=$PATH:/usr/sbin:/sbin
nodes=4
net=10.78.0
scratch=/run/cluster # in a file system that ends with the namespaces

skip() {
    echo "skipped: $*"
    exit 77
}
if [ -z "${CLUSTER_APART:-}" ]; then
    [ "$(id -u)" = 0 ] || skip "slurmd needs root"
    for name in slurmctld slurmd srun sbatch scontrol munged ip; do
        command -v $name >/dev/null || skip "there is no $name; 'tools/setup slurm net' installs it"
    done
    apart=(unshare --mount --net --uts --ipc --pid --fork --mount-proc --kill-child)
    "${apart[@]}" bash -c 'mount -t tmpfs none /run && mkdir /run/netns && ip link add probe0 type bridge && ip netns add h &&
        ip link add probe1 type veth peer name eth0 netns h && mknod /run/null c 1 3' >/dev/null 2>&1 ||
        skip "this user may not make namespaces here"
    CLUSTER_APART=yes exec "${apart[@]}" bash "$0" "$@"
fi

# await SECONDS COMMAND... - repeats the command until it succeeds.
await() {
    local end=$((SECONDS + $1))
    until "${@:2}"; do
        [ $SECONDS -lt $end ] || return 1
        sleep .1
    done
}

# Hosts.

make_hosts() {
    local h
    hostname control
    mount -t tmpfs none /run && mkdir /run/netns && mount -t tmpfs none /dev/shm && ip link set lo up &&
        ip link add bridge type bridge && ip addr add $net.100/24 dev bridge && ip link set bridge up || return 1
    mkdir -p $scratch/{home,bin,work,log,state,spool}
    {
        echo "127.0.0.1 localhost"
        echo "$net.100 control"
        for ((h = 1; h <= nodes; h++)); do echo "$net.$h n$h"; done
    } >$scratch/hosts
    mount --bind $scratch/hosts /etc/hosts || return 1
    for ((h = 1; h <= nodes; h++)); do
        ip netns add n$h && ip link add v$h type veth peer name eth0 netns n$h && ip link set v$h master bridge up &&
            ip -n n$h addr add $net.$h/24 dev eth0 && ip -n n$h link set lo up && ip -n n$h link set eth0 up &&
            : >/run/uts$h && unshare --uts=/run/uts$h hostname n$h || return 1
    done
}

# Slurm.

write_conf() {
    cat >$scratch/slurm.conf <<END
ClusterName=local
SlurmctldHost=control($net.100)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$scratch/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation=$scratch/state
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmctldLogFile=$scratch/log/slurmctld.log
SlurmdSpoolDir=$scratch/spool/%n
SlurmdPidFile=$scratch/slurmd-%n.pid
SlurmdLogFile=$scratch/log/slurmd-%n.log
SlurmdParameters=config_overrides
SwitchType=switch/none
KillWait=5
GresTypes=gpu
NodeName=n[1-$nodes] NodeAddr=$net.[1-$nodes] CPUs=4 RealMemory=4000 Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes=n[1-$nodes] Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
END
    echo "NodeName=n[1-$nodes] Name=gpu File=$scratch/gpu[0-1]" >$scratch/gres.conf
    mknod $scratch/gpu0 c 1 3 && mknod $scratch/gpu1 c 1 3
}
daemons=()
# daemon NAME COMMAND... - starts a daemon in the foreground.
daemon() {
    "${@:2}" >$scratch/log/"$1".out 2>&1 </dev/null &
    daemons+=($!)
}
are_idle() { timeout 10 sinfo -h -o '%D %T' 2>/dev/null | grep -qx "$nodes idle"; }
# Sets up the hosts and starts Slurm. Afterwards $scratch has a folder for everything.
start_cluster() {
    local h
    make_hosts || skip "the kernel has no bridges or no namespaces of hosts"
    write_conf || skip "this user may not make device files here"
    (umask 077 && head -c 128 /dev/urandom >$scratch/munge.key)
    daemon munged munged --foreground --force --key-file=$scratch/munge.key --socket=$scratch/munge.socket \
        --pid-file=$scratch/munged.pid --log-file=$scratch/log/munged.log --seed-file=$scratch/munge.seed
    await 20 test -S $scratch/munge.socket || return 1
    export SLURM_CONF=$scratch/slurm.conf HOME=$scratch/home
    daemon slurmctld slurmctld -D -c -i
    for ((h = 1; h <= nodes; h++)); do
        daemon n$h nsenter --net=/run/netns/n$h --uts=/run/uts$h slurmd -D -N n$h
    done
    await 60 are_idle
}
# Lists the processes of this cluster that are alive, apart from this script and its daemons.
others() {
    local folder pid
    for folder in /proc/[0-9]*; do
        pid=${folder#/proc/}
        [[ $pid == 1 || $pid == "$BASHPID" || " ${daemons[*]} " == *" $pid "* ]] && continue
        # Process 1 has not yet removed dead orphans; Slurm's controller has a process of its own for scripts.
        grep -qs '^State:.[^ZX]' "$folder/status" || continue
        { tr '\0' ' ' <"$folder/cmdline"; } 2>/dev/null | sed "s/^/$pid /" | grep -v ': slurmscriptd'
    done
}
none_else() { [ -z "$(others)" ]; }
# Stops Slurm. Fails, and says what there is, if a process is left.
stop_cluster() {
    local pid status=0
    kill "${daemons[@]}" 2>/dev/null
    for pid in "${daemons[@]}"; do
        await 20 is_gone "$pid" || status=1
    done
    daemons=()
    await 10 none_else || status=1
    [ $status -eq 0 ] || { echo "left running:" && others; }
    return $status
}
is_gone() { ! grep -qs '^State:.[^ZX]' "/proc/$1/status"; }

# Jobs.

# field JOB NAME - a value of `scontrol show job`.
field() { timeout 20 scontrol show -o job "$1" 2>/dev/null | tr ' ' '\n' | sed -n "s/^$2=//p" | head -1; }
state_is() { [[ $(field "$1" JobState) =~ ^($2)$ ]]; }
# ended SECONDS JOB - waits for the end of a job and sets $state and $status.
ended() {
    await "$1" state_is "$2" 'COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL'
    state=$(field "$2" JobState) status=$(field "$2" ExitCode)
}
