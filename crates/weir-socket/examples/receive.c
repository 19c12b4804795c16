/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Prints each datagram that comes to a port: receive PORT [COUNT] */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir_socket.h>

int main(int argc, char **argv)
{
	struct sockaddr_in here = {.sin_family = AF_INET}, from;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	int count = argc > 2 ? atoi(argv[2]) : -1;
	char buffer[2048], name[INET_ADDRSTRLEN];

	if (argc < 2 || fd < 0)
		return 2;
	here.sin_port = htons(atoi(argv[1]));
	if (bind(fd, (struct sockaddr *)&here, sizeof(here))) {
		perror("bind");
		return 1;
	}
	if (weir_socket_attach(fd, 0))
		fprintf(stderr, "an ordinary socket: %s\n", weir_socket_why());
	else
		puts("a lazy socket");
	fflush(stdout);
	while (count--) {
		struct pollfd ready = {weir_socket_ready_fd(fd), POLLIN, 0};
		socklen_t length = sizeof(from);
		ssize_t received;

		if (poll(&ready, 1, -1) < 0)
			return 1;
		received =
			weir_recvfrom(fd, buffer, sizeof(buffer), MSG_DONTWAIT,
				      (struct sockaddr *)&from, &length);
		if (received < 0)
			return 1;
		inet_ntop(AF_INET, &from.sin_addr, name, sizeof(name));
		printf("%zd bytes from %s: %.*s\n", received, name,
		       (int)received, buffer);
		fflush(stdout);
	}
	return 0;
}
