# apart.sh - runs a script in a network namespace and with a /dev/shm of its own, where nothing
# else is left or disturbed. Without permission for that, the script uses those of the machine.
# Sourced first, with the script's arguments: starts the script again, then sources common.sh.
set -u
PATH=$PATH:/usr/sbin:/sbin

if [ -z "${FAULTS_APART:-}" ]; then
    export FAULTS_APART=no
    for flags in -mn -rmn; do
        if unshare $flags sh -c 'ip link set lo up && mount -t tmpfs none /dev/shm' 2>/dev/null; then
            FAULTS_APART=yes
            exec unshare $flags bash "$0" "$@"
        fi
    done
    echo "no namespaces here: the cases share this machine's network and /dev/shm"
elif [ "$FAULTS_APART" = yes ]; then
    ip link set lo up && mount -t tmpfs none /dev/shm || exit 1
fi
source "$(dirname "$(realpath "$0")")/common.sh"
[ "$FAULTS_APART" = yes ] || listening() { :; } # other programs start and stop listening
before="$(listening) $(segments)"
