/* socket.h - TCP sockets: addresses, listening, connecting. Blocking calls have a deadline on lk__clock().
 * All sockets are close-on-exec and non-blocking, do not use Nagle's algorithm, and notice a vanished host by
 * keep-alive; a stopped process does not count as vanished. */
#ifndef LK_NET_SOCKET_H
#define LK_NET_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Splits "HOST:PORT" or "[v6]:PORT"; the port is at least 1; host has room for host_bytes. USAGE for other
 * texts. */
lk_status lk__net_split(const char *text, char *host, size_t host_bytes, int *port) LK_CHECKED;

/* Listens at host (a name or number; only at that address) and port; 0: any free port. *port_out is the port.
 * A port in use is IO with a detail that names it; an unknown name is NOT_FOUND. */
lk_status lk__net_listen(const char *host, int port, int *fd, int *port_out) LK_CHECKED;
/* Returns the next connection, or -1 with errno: EAGAIN if there is none. After another error, such as no
 * free descriptor, the listener stays readable, so the caller should pause. */
int lk__net_accept(int listener);
/* One attempt to connect until deadline, at each address of host in turn. *refused (may be NULL; always set)
 * says that nobody listens there; then the status is IO. No answer by the deadline is PEER. */
lk_status lk__net_connect(const char *host, int port, double deadline, int *fd, bool *refused) LK_CHECKED;
/* Sets the options of an open socket. `vanish`: seconds (at least 2) after which a host that does not answer
 * counts as lost; reads and writes then fail with ETIMEDOUT. A peer that reads nothing from a full connection
 * for that time counts as lost too, so for connections with data, vanish must not be less than the time that
 * a process may be stopped. Sockets of accept and connect begin with LK_NET_VANISH. */
enum { LK_NET_VANISH = 30 };
lk_status lk__net_prepare(int fd, double vanish) LK_CHECKED;
/* The `vanish` for a connection with few messages whose waits end after `timeout` seconds: less than timeout,
 * so that the vanished host can be named. */
double lk__net_vanish(double timeout);

/* Finds a free port at host. Until *holder is closed it stays free for programs that bind it with
 * SO_REUSEADDR, as all rendezvous methods do: the holder is bound but does not listen. */
lk_status lk__net_reserve(const char *host, int *holder, int *port) LK_CHECKED;

/* The numeric address of this end or the other end; "": unknown. */
void lk__net_local_address(int fd, char *text, size_t bytes);
void lk__net_peer_address(int fd, char *text, size_t bytes);
bool lk__net_is_loopback(const char *host);

/* Blocks until one of the poll(2) events or the deadline. Returns the events; 0: the deadline. */
short lk__net_wait(int fd, short events, double deadline);
/* Sends all bytes. Blocks until the deadline (PEER; errno is 0). A closed or lost connection is PEER; errno says
 * why. The kernel gives the reason for a lost connection once: later calls see a closed one. */
lk_status lk__net_send_all(int fd, const void *data, size_t bytes, double deadline) LK_CHECKED;
/* Whether a connection that ended with this errno was not ended by the peer: its host cannot be reached. */
bool lk__net_is_vanished(int error);

#endif
