/* stranger.c - clients that do not belong to a job.
 *
 *   stranger FILE
 *
 * Until FILE exists, connects to every listening port of this network namespace: one client sends
 * nothing, one sends single bytes, one sends garbage, one closes at once. Prints the number of
 * connections. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 48, PORTS = 64, TURN_MS = 5, GARBAGE = 4096 };

typedef enum manner { SILENT, SLOW, GARBLED, SCANNING, MANNERS } manner;

typedef struct client {
    int fd; /* -1: none */
    manner manner;
    uint32_t address;
    uint16_t port;
} client;

static client clients[CLIENTS];
static long calls, dropped;

/* Lists the IPv4 ports in state LISTEN. */
static int find_ports(uint32_t *addresses, uint16_t *ports)
{
    char text[512];
    unsigned address, port, state;
    int count = 0;
    FILE *file = fopen("/proc/net/tcp", "r");
    while (file && count < PORTS && fgets(text, sizeof text, file)) {
        if (sscanf(text, " %*d: %8X:%4X %*X:%*X %2X", &address, &port, &state) != 3 || state != 0x0A)
            continue;
        addresses[count] = address;
        ports[count++] = (uint16_t)port;
    }
    if (file)
        fclose(file);
    return count;
}

static int call(uint32_t address, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = address};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0 &&
        (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void hang_up(client *at)
{
    close(at->fd);
    at->fd = -1;
}

/* One turn of a client. */
static void act(client *at)
{
    uint8_t bytes[GARBAGE];
    size_t count = at->manner == GARBLED ? sizeof bytes : at->manner == SLOW ? 1 : 0;
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)rand();
    if (count > 0 && send(at->fd, bytes, count, MSG_NOSIGNAL) < 0 && errno != EAGAIN) {
        dropped++;
        hang_up(at);
        return;
    }
    ssize_t got = recv(at->fd, bytes, sizeof bytes, 0);
    if (at->manner == SCANNING || got == 0 || (got < 0 && errno != EAGAIN)) {
        dropped++;
        hang_up(at);
    }
}

static bool covered(uint32_t address, uint16_t port, manner how)
{
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i].fd >= 0 && clients[i].manner == how && clients[i].port == port && clients[i].address == address)
            return true;
    return false;
}

static void call_all(void)
{
    uint32_t addresses[PORTS];
    uint16_t ports[PORTS];
    int count = find_ports(addresses, ports);
    for (int p = 0; p < count; p++)
        for (manner how = SILENT; how < MANNERS; how++) {
            int i = 0;
            while (i < CLIENTS && clients[i].fd >= 0)
                i++;
            if (i == CLIENTS || covered(addresses[p], ports[p], how))
                continue;
            int fd = call(addresses[p], ports[p]);
            calls += fd >= 0;
            clients[i] = (client){.fd = fd, .manner = how, .address = addresses[p], .port = ports[p]};
        }
}

int main(int argc, char **argv)
{
    struct timespec turn = {.tv_nsec = TURN_MS * 1000000};
    if (argc != 2)
        return 2;
    for (int i = 0; i < CLIENTS; i++)
        clients[i].fd = -1;
    while (access(argv[1], F_OK) != 0) {
        call_all();
        for (int i = 0; i < CLIENTS; i++)
            if (clients[i].fd >= 0)
                act(&clients[i]);
        nanosleep(&turn, NULL);
    }
    printf("%ld calls, %ld dropped\n", calls, dropped);
    return calls > 0 ? 0 : 1;
}
