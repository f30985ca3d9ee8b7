/* host.c - name, identity and address of this host. */
#define _GNU_SOURCE /* IFF_UP and its kin in net/if.h */
#include "net/host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

void lk__host_name(char name[LK_HOST_BYTES])
{
    char whole[256] = "";
    if (gethostname(whole, sizeof whole - 1) != 0 || !whole[0])
        snprintf(whole, sizeof whole, "unknown");
    snprintf(name, LK_HOST_BYTES, "%.*s", LK_HOST_BYTES - 1, whole);
}

void lk__host_boot_id(char id[LK_BOOT_ID])
{
    id[0] = '\0';
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file)
        return;
    if (!fgets(id, LK_BOOT_ID, file))
        id[0] = '\0';
    id[strcspn(id, "\n")] = '\0';
    fclose(file);
}

uint64_t lk__host_key(void)
{
    const char *given = getenv("LOCKSTEP_HOSTID");
    if (given && given[0])
        return lk__hash(given, strlen(given), 0);
    char boot[LK_BOOT_ID], name[LK_HOST_BYTES];
    struct stat net = {0}, memory = {0};
    lk__host_boot_id(boot);
    lk__host_name(name);
    if (stat("/proc/self/ns/net", &net) != 0)
        net.st_ino = 0;
    if (stat("/dev/shm", &memory) != 0)
        memory.st_dev = 0;
    uint64_t numbers[2] = {(uint64_t)net.st_ino, (uint64_t)memory.st_dev};
    uint64_t key = lk__hash(boot, strlen(boot), 1);
    key = lk__hash(name, strlen(name), key);
    return lk__hash(numbers, sizeof numbers, key);
}

/* Writes the numeric text of an address that other hosts can reach. Returns false for loopback and for
 * link-local IPv6 addresses. */
static bool reachable(const struct sockaddr *at, char address[LK_ADDRESS_BYTES])
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (!at)
        return false;
    if (at->sa_family == AF_INET) {
        memcpy(&v4, at, sizeof v4);
        bool loopback = ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
        return !loopback && inet_ntop(AF_INET, &v4.sin_addr, address, LK_ADDRESS_BYTES);
    }
    if (at->sa_family != AF_INET6)
        return false;
    memcpy(&v6, at, sizeof v6);
    bool local = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) || IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
    return !local && inet_ntop(AF_INET6, &v6.sin6_addr, address, LK_ADDRESS_BYTES);
}

/* Finds the first address of an interface that is up, IPv4 before IPv6. If `wanted` is not NULL, only that
 * address. */
static bool find_interface(const struct ifaddrs *list, const char *wanted, char address[LK_ADDRESS_BYTES])
{
    static const int families[] = {AF_INET, AF_INET6};
    char text[LK_ADDRESS_BYTES];
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
            if (!(at->ifa_flags & IFF_UP) || !at->ifa_addr || at->ifa_addr->sa_family != families[f])
                continue;
            if (!reachable(at->ifa_addr, text) || (wanted && strcmp(text, wanted) != 0))
                continue;
            memcpy(address, text, sizeof text);
            return true;
        }
    }
    return false;
}

static bool find_by_name(const struct ifaddrs *interfaces, char address[LK_ADDRESS_BYTES])
{
    char name[256] = "", text[LK_ADDRESS_BYTES];
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    if (gethostname(name, sizeof name - 1) != 0 || getaddrinfo(name, NULL, &hints, &list) != 0)
        return false;
    bool found = false;
    for (struct addrinfo *info = list; info && !found; info = info->ai_next)
        found = reachable(info->ai_addr, text) && find_interface(interfaces, text, address);
    freeaddrinfo(list);
    return found;
}

void lk__host_address(char address[LK_ADDRESS_BYTES])
{
    const char *given = getenv("LOCKSTEP_HOST_ADDR");
    snprintf(address, LK_ADDRESS_BYTES, "%s", given && given[0] ? given : "127.0.0.1");
    struct ifaddrs *list;
    if ((given && given[0]) || getifaddrs(&list) != 0)
        return;
    if (!find_by_name(list, address))
        (void)find_interface(list, NULL, address);
    freeifaddrs(list);
}

lk_member lk__host_member(void)
{
    lk_member member = {.host_key = lk__host_key(), .pid = (int32_t)getpid()};
    lk__host_name(member.host);
    return member;
}

const char *lk__member_text(int rank, const lk_member *member, char text[LK_MEMBER_TEXT])
{
    snprintf(text, LK_MEMBER_TEXT, "rank %d (host %s, pid %d)", rank, member->host, (int)member->pid);
    return text;
}
