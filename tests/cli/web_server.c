/* web_server.c - `web_server FOLDER [FAULT=VALUE ...]` serves files for scripts. It prints its URL and ends
 * at the end of its standard input. Faults: refuse=STATUS, refusals=N, cut=BYTES, cuts=N, stall=BYTES,
 * no-ranges=1. */
#include "data/http_server.h"

static bool set_fault(http_faults *faults, const char *text)
{
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : 0;
    long value = equals ? strtol(equals + 1, NULL, 10) : 0;
    bool known = true;
    if (length == 6 && strncmp(text, "refuse", length) == 0) {
        faults->status = (int)value;
        faults->refusals = -1;
    } else if (length == 8 && strncmp(text, "refusals", length) == 0) {
        faults->refusals = (int)value;
    } else if (length == 3 && strncmp(text, "cut", length) == 0) {
        faults->cut_after = (size_t)value;
        faults->cuts = -1;
    } else if (length == 4 && strncmp(text, "cuts", length) == 0) {
        faults->cuts = (int)value;
    } else if (length == 5 && strncmp(text, "stall", length) == 0) {
        faults->stall_after = (size_t)value;
        faults->stalls = -1;
    } else if (length == 9 && strncmp(text, "no-ranges", length) == 0) {
        faults->no_ranges = value != 0;
    } else {
        known = false;
    }
    return known;
}

int main(int argc, char **argv)
{
    http_faults faults = {0};
    http_server server;
    for (int i = 2; i < argc; i++) {
        if (!set_fault(&faults, argv[i])) {
            fprintf(stderr, "web_server: no fault '%s'\n", argv[i]);
            return 2;
        }
    }
    if (argc < 2 || !http_start(&server, argv[1])) {
        fprintf(stderr, "web_server: cannot serve\n");
        return 1;
    }
    http_set(&server, faults);
    printf("%s\n", server.url);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    http_stop(&server);
    return 0;
}
