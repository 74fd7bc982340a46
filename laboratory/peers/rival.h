/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * One end of a stream of events over some middleware. Each rival includes this
 * header and defines the functions below; this header has the program.
 *
 *	program publish|subscribe|stopped ADDRESS BYTES EVENTS_PER_S FROM UNTIL RESULT
 *
 * FROM and UNTIL are times of CLOCK_MONOTONIC in nanoseconds. With 0 events per
 * second, events are sent as fast as the middleware accepts them. An event begins
 * with its number and the time when it was sent. A subscriber writes as JSON: the
 * number of events that arrived before UNTIL, the number of these with a wrong
 * length, and the delays of the first of them. The same semantics as
 * laboratory/src/workload/rival.rs.
 */
#ifndef UNISONO_RIVAL_H
#define UNISONO_RIVAL_H

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HEAD 16
#define MAX_DELAYS 20000

/* A publisher connects, publishes events one by one, and waits until all of them
 * have left. */
static void open_publisher(const char *address, size_t bytes);
static void publish(const unsigned char *event, size_t bytes);
static void close_publisher(void);
static void open_subscriber(const char *address, size_t bytes);
/* Waits some milliseconds for an event; returns its length and its first bytes.
 * 0: none came. */
static size_t receive(unsigned char head[HEAD]);

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

/* Ends the program because of a wrong command line. */
static void refuse(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(2);
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void sleep_until(uint64_t at)
{
	struct timespec time = { (time_t)(at / 1000000000u), (long)(at % 1000000000u) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) {
	}
}

static void supply(size_t bytes, double per_second, uint64_t from, uint64_t until)
{
	unsigned char *event = calloc(1, bytes);
	uint64_t number;

	sleep_until(from);
	for (number = 0; now() < until; number++) {
		uint64_t sent;

		if (per_second > 0) {
			uint64_t due = from + (uint64_t)((double)number * 1e9 / per_second);

			if (due >= until)
				break;
			sleep_until(due);
		}
		sent = now();
		memcpy(event, &number, sizeof(number));
		memcpy(event + sizeof(number), &sent, sizeof(sent));
		publish(event, bytes);
	}
	free(event);
}

static void consume(size_t bytes, uint64_t from, uint64_t until, const char *path)
{
	uint64_t *delays = calloc(MAX_DELAYS, sizeof(*delays));
	uint64_t events = 0, wrong = 0, sent, here;
	unsigned char head[HEAD];
	FILE *result;
	size_t length;

	while ((here = now()) < until) {
		length = receive(head);
		if (length == 0)
			continue;
		here = now();
		memcpy(&sent, head + sizeof(sent), sizeof(sent));
		if (sent < from || here > until)
			continue;
		if (events < MAX_DELAYS)
			delays[events] = here - sent;
		events++;
		wrong += length != bytes;
	}
	result = fopen(path, "w");
	if (!result)
		fail(path, strerror(errno));
	fprintf(result, "{\"events\": %" PRIu64 ", \"wrong_length\": %" PRIu64 ", \"delays_ns\": [", events,
		wrong);
	for (uint64_t at = 0; at < events && at < MAX_DELAYS; at++)
		fprintf(result, "%s%" PRIu64, at ? "," : "", delays[at]);
	fprintf(result, "]}\n");
	if (fclose(result) != 0)
		fail(path, strerror(errno));
	free(delays);
}

int main(int count, char **words)
{
	size_t bytes;
	uint64_t from, until;

	if (count != 8)
		refuse("usage", "publish|subscribe|stopped ADDRESS BYTES EVENTS_PER_S FROM UNTIL RESULT");
	bytes = strtoull(words[3], NULL, 10);
	from = strtoull(words[5], NULL, 10);
	until = strtoull(words[6], NULL, 10);
	if (bytes < HEAD)
		refuse(words[3], "an event has at least 16 bytes");
	if (strcmp(words[1], "publish") == 0) {
		open_publisher(words[2], bytes);
		supply(bytes, strtod(words[4], NULL), from, until);
		close_publisher();
	} else if (strcmp(words[1], "subscribe") == 0 || strcmp(words[1], "stopped") == 0) {
		open_subscriber(words[2], bytes);
		consume(bytes, from, until, words[7]);
	} else {
		refuse(words[1], "the first word is publish, subscribe or stopped");
	}
	return 0;
}

#endif
