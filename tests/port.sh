# port.sh - free ports for jobs of tests. Sourced.

# Prints a port on which nobody listens, outside the range of ephemeral ports.
free_port() {
    local port
    until port=$((20000 + RANDOM % 9000)); ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo "$port"
}
