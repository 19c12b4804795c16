/*
 * UDP for the smoke test, where there is no other tool for it:
 *   udp hold ADDRESS PORT        a socket that nobody reads, until killed
 *   udp take ADDRESS PORT        prints the length of the first datagram
 *   udp send ADDRESS PORT COUNT  so many datagrams of 14 bytes, at once
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	const char payload[14] = "fourteen bytes";
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	char buffer[64];
	long count;

	if (argc < 4 || fd < 0 ||
	    inet_pton(AF_INET, argv[2], &address.sin_addr) != 1)
		return 2;
	address.sin_port = htons(atoi(argv[3]));
	if (!strcmp(argv[1], "send")) {
		for (count = argc > 4 ? atol(argv[4]) : 1; count > 0; count--)
			/* ENOBUFS and the like are a full ring's: go on. */
			sendto(fd, payload, sizeof(payload), 0,
			       (struct sockaddr *)&address, sizeof(address));
		return 0;
	}
	if (bind(fd, (struct sockaddr *)&address, sizeof(address))) {
		perror("bind");
		return 1;
	}
	if (!strcmp(argv[1], "take")) {
		printf("%zd\n", recv(fd, buffer, sizeof(buffer), 0));
		return 0;
	}
	pause();
	return 0;
}
