/* host.h - what this host is called, and how others reach it. */
#ifndef LK_COMM_HOST_H
#define LK_COMM_HOST_H

#include "comm/transport.h"

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

#endif
