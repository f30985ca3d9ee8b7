/* host.h - name, identity and address of this host. */
#ifndef LK_NET_HOST_H
#define LK_NET_HOST_H

#include <stdint.h>

/* A rank without a shard has no work, so a job has at most as many ranks as a run has shards (LK_MAX_SHARDS). */
enum { LK_HOST_BYTES = 64, LK_ADDRESS_BYTES = 64, LK_MAX_RANKS = 4096 };

/* A rank of the job, as all ranks know it. */
typedef struct lk_member {
    uint64_t host_key; /* equal for ranks that share memory */
    int32_t pid;
    char host[LK_HOST_BYTES];       /* name, for messages */
    char address[LK_ADDRESS_BYTES]; /* numeric address for connections from other hosts */
} lk_member;

/* The host's name, truncated if necessary. */
void lk__host_name(char name[LK_HOST_BYTES]);
/* The id of this boot of the kernel; "": unknown. */
enum { LK_BOOT_ID = 40 };
void lk__host_boot_id(char id[LK_BOOT_ID]);
/* Equal for processes that can share memory: same boot of the same kernel, same network namespace, host name
 * and /dev/shm. $LOCKSTEP_HOSTID replaces all of these. */
uint64_t lk__host_key(void);
/* The numeric address for connections from other hosts: $LOCKSTEP_HOST_ADDR; the address of the host's own
 * name, if an interface has it and it is not loopback; the first interface that is up; else 127.0.0.1. */
void lk__host_address(char address[LK_ADDRESS_BYTES]);
/* Describes this process; address is left empty. */
lk_member lk__host_member(void);
/* Writes "rank 2 (host b, pid 123)" and returns text. */
enum { LK_MEMBER_TEXT = 128 };
const char *lk__member_text(int rank, const lk_member *member, char text[LK_MEMBER_TEXT]);

#endif
