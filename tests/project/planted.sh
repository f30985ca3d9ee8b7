# planted.sh - tests of a lint tool with planted faults. Sourced with the arguments SOURCE NAME:
# the tool is SOURCE/tools/NAME. The sourcing script defines fresh(), which writes into the
# empty folder $root a small tree that the tool accepts.
tool=$1/tools/$2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# plant FILE LINE [FILE LINE]... - the tree of fresh() with these lines added.
plant() {
    rm -rf "${root:?}"/*
    fresh
    for ((; $# > 0; )); do
        mkdir -p "$root/$(dirname "$1")"
        echo "$2" >>"$root/$1"
        shift 2
    done
}

# accept [FILE LINE]... - the tool accepts that tree and prints nothing.
accept() {
    local out
    plant "$@"
    if ! out=$("$tool" "$root") || [ -n "$out" ]; then
        echo "refused: $* because of: $out"
        exit 1
    fi
}

# breach WORDS FILE LINE [FILE LINE]... - the tool fails and prints WORDS (a pattern).
breach() {
    local words=$1 out
    shift
    plant "$@"
    if out=$("$tool" "$root"); then
        echo "accepted: $*"
        exit 1
    fi
    # shellcheck disable=SC2053 # a pattern
    if [[ $out != *$words* ]]; then
        echo "expected '$words', got: $out"
        exit 1
    fi
}
