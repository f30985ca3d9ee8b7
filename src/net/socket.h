/* socket.h - sockets: addresses, listening, connecting with a deadline. Blocking
 * calls take a deadline on lk__clock(); all sockets are close-on-exec,
 * non-blocking and without Nagle's delay, and notice a vanished host by
 * themselves (keep-alive), which a stopped process does not trigger. */
#ifndef LK_NET_SOCKET_H
#define LK_NET_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* "HOST:PORT" or "[v6]:PORT" in two, the port from 1 on; host has room for
 * host_bytes. USAGE when it is neither. */
lk_status lk__net_split(const char *text, char *host, size_t host_bytes, int *port) LK_CHECKED;

/* Listens at host (name or number: just that address) and port, 0 for any free
 * one; *port_out is the port. A port in use is IO, with a detail that names it; a
 * name that is not known is NOT_FOUND. */
lk_status lk__net_listen(const char *host, int port, int *fd, int *port_out) LK_CHECKED;
/* The next waiting connection, or -1 with errno: EAGAIN when none is there; else,
 * as when no descriptor is free, the listener stays readable, so wait a little. */
int lk__net_accept(int listener);
/* One attempt to connect until deadline, at each address of host in turn.
 * *refused (may be NULL; always set) tells that nobody listens there (yet); then
 * the status is IO. No answer by the deadline is PEER. */
lk_status lk__net_connect(const char *host, int port, double deadline, int *fd, bool *refused) LK_CHECKED;
/* Options of an open socket; `vanish` is the seconds (at least 2) after which a
 * host that does not answer is given up: reads and writes then fail with
 * ETIMEDOUT. A peer that takes nothing from a full connection for that long is
 * given up as well, although its host is there: on links that carry data, vanish
 * must be no less than what a stopped process is allowed. Sockets of accept and
 * connect start with LK_NET_VANISH. */
enum { LK_NET_VANISH = 30 };
lk_status lk__net_prepare(int fd, double vanish) LK_CHECKED;
/* What suits a link that carries a few messages, where `timeout` seconds end all
 * waiting: earlier than that, so that the host that vanished is named. */
double lk__net_vanish(double timeout);

/* A port that is free at host now, and stays so for programs that bind it with
 * SO_REUSEADDR (as all rendezvous do) until *holder is closed: the holder is
 * bound but does not listen. */
lk_status lk__net_reserve(const char *host, int *holder, int *port) LK_CHECKED;

/* Numeric address of this end / the other end, "" when unknown. */
void lk__net_local_address(int fd, char *text, size_t bytes);
void lk__net_peer_address(int fd, char *text, size_t bytes);
bool lk__net_is_loopback(const char *host);

/* Waits for poll(2) events until deadline; returns what came, 0 at the deadline. */
short lk__net_wait(int fd, short events, double deadline);
/* All of it, until deadline (PEER). A connection that is closed or lost is PEER. */
lk_status lk__net_send_all(int fd, const void *data, size_t bytes, double deadline) LK_CHECKED;

#endif
