/* host.h - what this host is called, and how others reach it. */
#ifndef LK_NET_HOST_H
#define LK_NET_HOST_H

#include <stdint.h>

enum { LK_HOST_BYTES = 64, LK_ADDRESS_BYTES = 64, LK_MAX_RANKS = 1024 };

/* A rank of the job, as all ranks know it. */
typedef struct lk_member {
    uint64_t host_key; /* equal for ranks that share memory */
    int32_t pid;
    char host[LK_HOST_BYTES];       /* name, for people */
    char address[LK_ADDRESS_BYTES]; /* numeric, at which ranks of other hosts reach it */
} lk_member;

/* Its name, cut to fit. */
void lk__host_name(char name[LK_HOST_BYTES]);
/* The id of this start of the kernel, "" where it is not known. */
enum { LK_BOOT_ID = 40 };
void lk__host_boot_id(char id[LK_BOOT_ID]);
/* Equal for processes that can share memory: those of one start of one kernel,
 * one network namespace, one host name and one /dev/shm. $LOCKSTEP_HOSTID
 * takes the place of all that. */
uint64_t lk__host_key(void);
/* The numeric address at which other hosts reach this one: $LOCKSTEP_HOST_ADDR;
 * what its own name stands for, if that is an address of an interface and not
 * loopback; the first interface that is up; else 127.0.0.1. */
void lk__host_address(char address[LK_ADDRESS_BYTES]);
/* This process as a member; address is left empty. */
lk_member lk__host_member(void);
/* "rank 2 (host b, pid 123)". */
enum { LK_MEMBER_TEXT = 128 };
const char *lk__member_text(int rank, const lk_member *member, char text[LK_MEMBER_TEXT]);

#endif
