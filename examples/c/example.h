/* Helpers of the examples: calls that must succeed, numbers from the command line, time; for events, a
 * broker. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include "unisono.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Ends the program with the library's error text if a call fails. */
#define MUST(call)                                                                                           \
	do {                                                                                                 \
		if ((call) != UNISONO_STATUS_OK) {                                                           \
			fprintf(stderr, "%s: %s\n", #call, unisono_error_text());                            \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

struct option {
	const char *name; /* such as "--steps" */
	const char *help;
	long least;
	long *value;
};

static inline void usage(FILE *to, const char *about, const struct option *options, int count)
{
	fprintf(to, "%s\n\nOptions:\n", about);
	for (int i = 0; i < count; i++)
		fprintf(to, "  %s N  %s [default: %ld]\n", options[i].name, options[i].help,
			*options[i].value);
}

static inline void read_options(int argc, char **argv, const char *about, const struct option *options,
				int count)
{
	for (int at = 1; at < argc; at++) {
		const struct option *found = NULL;
		char *end = NULL;

		if (!strcmp(argv[at], "--help") || !strcmp(argv[at], "-h")) {
			usage(stdout, about, options, count);
			exit(0);
		}
		for (int i = 0; i < count; i++)
			if (!strcmp(argv[at], options[i].name))
				found = &options[i];
		if (!found) {
			fprintf(stderr, "there is no option %s; try --help\n", argv[at]);
			exit(2);
		}
		if (++at < argc)
			*found->value = strtol(argv[at], &end, 10);
		if (!end || end == argv[at] || *end || *found->value < found->least) {
			fprintf(stderr, "%s: a number from %ld on was expected; try --help\n", found->name,
				found->least);
			exit(2);
		}
	}
}

/* Connects to the broker at the address in the last argument, or else to this user's. */
static inline unisono_client *broker(const char *address)
{
	unisono_client *client;

	MUST(unisono_client_connect(address, &client));
	return client;
}

/* The field of an event; ends the program if the event lacks it. */
static inline const unisono_field *field(const unisono_event *event, const char *name)
{
	for (size_t i = 0; i < event->field_count; i++)
		if (!strcmp(event->fields[i].name, name))
			return &event->fields[i];
	fprintf(stderr, "an event of %s without the field %s\n", event->topic, name);
	exit(1);
}

static inline double seconds_now(void)
{
	struct timespec now;

	timespec_get(&now, TIME_UTC);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#endif
