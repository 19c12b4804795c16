/*
 * UDP for the smoke test, where there is no other tool for it:
 *   udp hold ADDRESS PORT        a socket that nobody reads, until killed
 *   udp take ADDRESS PORT        prints the length of the first datagram
 *   udp send ADDRESS PORT COUNT  so many datagrams of 14 bytes, at once
 *   udp pace ADDRESS PORT COUNT  so many numbered ones, 400 a second; on SIGTERM
 *                                fewer; prints the last one's number
 *   udp tally ADDRESS PORT       prints how many are missing between the first
 *                                and the last of these, and the last one's
 *                                number, after 3 s without one
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t ended;

static void end(int number)
{
	ended = number;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	const char payload[14] = "fourteen bytes";
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	char buffer[64];
	const struct timeval patience = {.tv_sec = 60};
	const struct timeval silence = {.tv_sec = 3};
	long count, number, first, came = 0;

	if (argc < 4 || fd < 0 ||
	    inet_pton(AF_INET, argv[2], &address.sin_addr) != 1)
		return 2;
	address.sin_port = htons(atoi(argv[3]));
	count = argc > 4 ? atol(argv[4]) : 1;
	if (!strcmp(argv[1], "send")) {
		for (; count > 0; count--)
			/* ENOBUFS and the like are a full ring's: go on. */
			sendto(fd, payload, sizeof(payload), 0,
			       (struct sockaddr *)&address, sizeof(address));
		return 0;
	}
	if (!strcmp(argv[1], "pace")) {
		signal(SIGTERM, end);
		for (number = 0; number < count && !ended; number++) {
			/* An interface may be down meanwhile. */
			sendto(fd, &number, sizeof(number), 0,
			       (struct sockaddr *)&address, sizeof(address));
			usleep(2500);
		}
		printf("%ld\n", number - 1);
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
	if (!strcmp(argv[1], "tally")) {
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience,
			   sizeof(patience));
		if (recv(fd, &first, sizeof(first), MSG_PEEK) <= 0)
			return 1;
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence,
			   sizeof(silence));
		while (recv(fd, &number, sizeof(number), 0) > 0)
			came++;
		printf("%ld %ld\n", number - first + 1 - came, number);
		return 0;
	}
	pause();
	return 0;
}
