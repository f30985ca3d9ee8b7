# idx.sh - writes data sets in the file format of MNIST. Sourced by tests.

byte() { printf '%b' "\\0$(printf %o "$1")"; }
big_endian() { byte $(($1 >> 24 & 255)) && byte $(($1 >> 16 & 255)) && byte $(($1 >> 8 & 255)) && byte $(($1 & 255)); }
# idx PREFIX COUNT - writes COUNT images of 28x28, with pixels from stdin, and their labels.
idx() {
    local i
    { big_endian 0x803 && big_endian "$2" && big_endian 28 && big_endian 28 && head -c $(($2 * 784)); } \
        >"$1-images-idx3-ubyte"
    { big_endian 0x801 && big_endian "$2" && for ((i = 0; i < $2; i++)); do byte $((i * 7 % 10)); done; } \
        >"$1-labels-idx1-ubyte"
}
