/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The options of every program. The same flags as
 * crates/workload/src/options.rs.
 */
#ifndef UNISONO_OPTIONS_H
#define UNISONO_OPTIONS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CACHE_LINE 128
#define MAX_THREADS 1024
#define DRAWS 1024 /* a power of two */

struct options {
	int threads;
	uint64_t interval_ns;
	uint64_t variance_ns;
	double seconds;
	double warm_up;
	uint64_t seed;
	uint64_t start_at;   /* CLOCK_MONOTONIC, 0: after the warm-up */
	uint64_t iterations; /* 0: until the time is over */
	int size;	     /* kernels: 0 is their default */
	int draws;	     /* print this many arrival times and stop */
	const char *pin;
	const char *result;
	int cpus[MAX_THREADS];
	int cpu_count; /* 0: not pinned */
};

static void bad_usage(const char *flag, const char *value, const char *expected)
{
	fprintf(stderr, "%s %s: expected %s\n", flag, value ? value : "", expected);
	exit(2);
}

static uint64_t parse_count(const char *flag, const char *text, uint64_t least, uint64_t most)
{
	char *end = NULL;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] == '-' || value < least || value > most)
		bad_usage(flag, text, "a whole number within its limits");
	return value;
}

static uint64_t parse_duration(const char *flag, const char *text)
{
	char *end = NULL;
	double value = strtod(text, &end);
	double scale = 0;

	if (!strcmp(end, "ns"))
		scale = 1;
	else if (!strcmp(end, "us"))
		scale = 1e3;
	else if (!strcmp(end, "ms"))
		scale = 1e6;
	else if (!strcmp(end, "s"))
		scale = 1e9;
	else if (!strcmp(text, "0"))
		return 0;
	if (end == text || scale == 0 || !(value >= 0) || value * scale > 1e15)
		bad_usage(flag, text, "a duration, for example 50us");
	return (uint64_t)llround(value * scale);
}

static void parse_pin(struct options *o, const char *text)
{
	cpu_set_t allowed;
	const char *at = text;

	o->pin = text;
	o->cpu_count = 0;
	if (!strcmp(text, "none"))
		return;
	if (!strcmp(text, "spread")) {
		if (sched_getaffinity(0, sizeof(allowed), &allowed))
			bad_usage("--pin", text, "a readable affinity");
		for (int cpu = 0; cpu < CPU_SETSIZE && o->cpu_count < MAX_THREADS; cpu++)
			if (CPU_ISSET(cpu, &allowed))
				o->cpus[o->cpu_count++] = cpu;
		return;
	}
	while (*at) {
		char *end = NULL;
		long first = strtol(at, &end, 10), last = first;

		if (end == at || first < 0)
			bad_usage("--pin", text, "none, spread or a list like 0-3,8");
		if (*end == '-') {
			at = end + 1;
			last = strtol(at, &end, 10);
			if (end == at || last < first)
				bad_usage("--pin", text, "none, spread or a list like 0-3,8");
		}
		for (long cpu = first; cpu <= last && o->cpu_count < MAX_THREADS; cpu++)
			o->cpus[o->cpu_count++] = (int)cpu;
		if (*end && *end != ',')
			bad_usage("--pin", text, "none, spread or a list like 0-3,8");
		at = *end ? end + 1 : end;
	}
}

static struct options parse_options(int argc, char **argv)
{
	static struct options o;

	o.threads = 2;
	o.seconds = 1;
	o.warm_up = 0.1;
	o.seed = 1;
	o.pin = "none";
	for (int i = 1; i < argc; i++) {
		const char *flag = argv[i];
		const char *value = argv[i + 1];

		if (!strcmp(flag, "--die-with-parent")) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() == 1)
				exit(1);
			continue;
		}
		if (!value)
			bad_usage(flag, NULL, "a value");
		i++;
		if (!strcmp(flag, "--threads"))
			o.threads = (int)parse_count(flag, value, 1, MAX_THREADS);
		else if (!strcmp(flag, "--interval"))
			o.interval_ns = parse_duration(flag, value);
		else if (!strcmp(flag, "--variance"))
			o.variance_ns = parse_duration(flag, value);
		else if (!strcmp(flag, "--seconds"))
			o.seconds = atof(value);
		else if (!strcmp(flag, "--warm-up"))
			o.warm_up = (double)parse_duration(flag, value) / 1e9;
		else if (!strcmp(flag, "--seed"))
			o.seed = parse_count(flag, value, 0, UINT64_MAX);
		else if (!strcmp(flag, "--start-at"))
			o.start_at = parse_count(flag, value, 0, UINT64_MAX);
		else if (!strcmp(flag, "--iterations"))
			o.iterations = parse_count(flag, value, 1, UINT64_MAX);
		else if (!strcmp(flag, "--size"))
			o.size = (int)parse_count(flag, value, 4, 1 << 14);
		else if (!strcmp(flag, "--draws"))
			o.draws = (int)parse_count(flag, value, 1, DRAWS);
		else if (!strcmp(flag, "--pin"))
			parse_pin(&o, value);
		else if (!strcmp(flag, "--result"))
			o.result = value;
		else
			bad_usage(flag, value, "a known option");
	}
	if (!(o.seconds > 0) || o.seconds > 3600)
		bad_usage("--seconds", "", "more than 0 and at most 3600");
	return o;
}

static void pin_participant(const struct options *o, int thread)
{
	cpu_set_t set;

	if (!o->cpu_count)
		return;
	CPU_ZERO(&set);
	CPU_SET(o->cpus[thread % o->cpu_count], &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		fprintf(stderr, "cannot pin participant %d to processor %d: %s\n", thread,
			o->cpus[thread % o->cpu_count], strerror(errno));
		exit(1);
	}
}

#endif
