/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Lazy UDP sockets for C: packets wait on a ring, unprocessed, until they are
 * received. Where weir does not run, or refuses, the calls are the C library's
 * own. See docs/lazy.md.
 */
#ifndef WEIR_SOCKET_H
#define WEIR_SOCKET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mmsghdr;

/*
 * Makes a bound UDP socket lazy, with a ring of so many bytes: a power of two
 * from 64 KiB to 64 MiB; 0: 4 MiB. Options that ask for control messages
 * (IP_PKTINFO, SO_TIMESTAMPNS, ...) are to be set before. 0 if it is lazy now;
 * else -1, and errno is ENOENT (no weir offers lazy sockets here), EACCES (one
 * does, but not to this user), EPERM (weir refuses, such as where firewall rules
 * would be bypassed), ETIMEDOUT (it does not answer), EMFILE or ENOMEM (the
 * program's own limits leave no room), or another; weir_socket_why() says more.
 * A socket that was lazy already stays so, any other is then an ordinary one,
 * and all calls below work.
 */
int weir_socket_attach(int fd, uint64_t ring_bytes);

/* Why this thread's last socket that weir_socket_attach() left ordinary is so,
 * and what to do, in words; "" if there was none. It lasts until the next. */
const char *weir_socket_why(void);

/* Its packets go to the kernel's socket, within milliseconds. The calls below
 * give what is on the ring by then, and then those: nothing is lost. -1 and
 * EBADF if it was not lazy. */
int weir_socket_leave(int fd);

/* The socket is an ordinary one from now on; what is on its ring, or comes
 * there within milliseconds, is lost. To be called before close(). -1 and EBADF
 * if it was not lazy. */
int weir_socket_detach(int fd);

/* A descriptor that is readable while a call below would not block: for poll()
 * and the like, level-triggered. It lasts until the socket is detached. */
int weir_socket_ready_fd(int fd);

/* As the calls without the prefix, for lazy sockets and all others. */
ssize_t weir_recvfrom(int fd, void *buffer, size_t length, int flags,
		      struct sockaddr *address, socklen_t *address_length);
ssize_t weir_recvmsg(int fd, struct msghdr *message, int flags);
int weir_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count,
		  int flags, struct timespec *timeout);

#ifdef __cplusplus
}
#endif

#endif /* WEIR_SOCKET_H */
