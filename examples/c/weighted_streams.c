/* A streaming server whose streams share a link by their bit rates: each stream is a socket with a weight.
 *
 *	sudo unisono queue apply ../policies/streams.toml --dev eth0
 *	sudo unisono queue guard &
 *	./weighted_streams video 10 10.0.0.7:5004 1500 3  10.0.0.8:5004 500 1
 *
 * The arguments are the class, the seconds, and for each stream its receiver (IPv4), its bit rate in kbit/s
 * and its weight. The policy has to permit this user to put sockets into the class. If the class has less
 * bandwidth than all streams need, each stream gets a part by its weight, and a packet for which its socket
 * has no room is lost.
 */
#define _GNU_SOURCE
#include "unisono.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 1000, MAX_STREAMS = 64 };

struct stream {
	int socket;
	double kbit, due; /* packets by now */
	long sent, lost;
};

static double now(void)
{
	return (double)unisono_now() / 1e9;
}

static void open_stream(struct stream *stream, char *receiver, const char *class_name, double kbit,
			double weight)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	char *port = strrchr(receiver, ':');

	if (port)
		*port++ = '\0';
	if (!port || inet_pton(AF_INET, receiver, &to.sin_addr) != 1) {
		fprintf(stderr, "%s is no receiver; write ADDRESS:PORT\n", receiver);
		exit(2);
	}
	to.sin_port = htons((uint16_t)atoi(port));
	stream->kbit = kbit;
	stream->socket = socket(AF_INET, SOCK_DGRAM, 0);
	if (stream->socket < 0 || connect(stream->socket, (struct sockaddr *)&to, sizeof(to)) != 0) {
		perror(receiver);
		exit(1);
	}
	if (unisono_share_socket(stream->socket, class_name, weight) != 0) {
		fprintf(stderr, "%s\n", unisono_error_text());
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static struct stream streams[MAX_STREAMS];
	static const char packet[BYTES];
	int count = (argc - 3) / 3;
	double start, end;

	if (argc < 6 || argc % 3 != 0 || count > MAX_STREAMS) {
		fprintf(stderr, "weighted_streams CLASS SECONDS ADDRESS:PORT KBIT WEIGHT ...\n");
		return 2;
	}
	for (int i = 0; i < count; i++) {
		char **words = argv + 3 + 3 * i;

		open_stream(&streams[i], words[0], argv[1], atof(words[1]), atof(words[2]));
	}
	start = now();
	end = start + atof(argv[2]);
	for (double at = start; at < end; at = now()) {
		for (struct stream *stream = streams; stream < streams + count; stream++) {
			stream->due = (at - start) * stream->kbit * 1000 / (8 * BYTES);
			while ((double)(stream->sent + stream->lost) < stream->due)
				if (send(stream->socket, packet, BYTES, MSG_DONTWAIT) == BYTES)
					stream->sent++;
				else
					stream->lost++;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	for (int i = 0; i < count; i++)
		printf("%s: %ld packets, %ld lost\n", argv[3 + 3 * i], streams[i].sent, streams[i].lost);
	return 0;
}
