# apart.sh - a network and a /dev/shm of its own show what is left, and keep
# strangers away from others. Without the right to have them a script does with
# the machine's. Sourced first, with the script's arguments: starts it again, and
# then sources common.sh.
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
[ "$FAULTS_APART" = yes ] || listening() { :; } # others come and go
before="$(listening) $(segments)"
