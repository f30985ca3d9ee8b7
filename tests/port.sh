# port.sh - ports for jobs of tests. Sourced.

# A port where nobody listens, out of the range from which the system gives ports.
free_port() {
    local port
    until port=$((20000 + RANDOM % 9000)); ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo "$port"
}
