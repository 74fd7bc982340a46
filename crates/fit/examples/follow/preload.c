/* An experiment, not a feature: a preload that has an OpenMP program follow its quota. Before a parallel
 * region without a num_threads clause it reads the quota, at most ten times a second, and calls
 * omp_set_num_threads. It never asks for more threads than the program had at first. The reasons against it
 * are in decision 26.
 *
 * FOLLOW_QUOTA names the group's cpu.max (version 2) or cpu.cfs_quota_us (version 1; the period is 100 ms).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { READ_INTERVAL_MS = 100, PERIOD_US = 100000 };

static int threads_at_first;
static atomic_long next_read_ms;

static int threads_of_quota(void)
{
	const char *path = getenv("FOLLOW_QUOTA");
	FILE *file = path ? fopen(path, "r") : NULL;
	long quota_us = 0, period_us = PERIOD_US;

	if (!file)
		return threads_at_first;
	/* "max", and -1 in version 1, mean that there is no quota */
	int found = fscanf(file, "%ld %ld", &quota_us, &period_us);
	fclose(file);
	if (found < 1 || quota_us <= 0)
		return threads_at_first;
	long threads = (quota_us + period_us - 1) / period_us;
	return threads < threads_at_first ? (int)threads : threads_at_first;
}

static void follow(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	long ms = now.tv_sec * 1000 + now.tv_nsec / 1000000;
	long next = atomic_load(&next_read_ms);
	if (ms < next || !atomic_compare_exchange_strong(&next_read_ms, &next, ms + READ_INTERVAL_MS))
		return;
	if (!threads_at_first)
		threads_at_first = omp_get_max_threads();
	omp_set_num_threads(threads_of_quota());
}

void GOMP_parallel(void (*body)(void *), void *data, unsigned int threads, unsigned int flags)
{
	static void (*parallel)(void (*)(void *), void *, unsigned int, unsigned int);

	if (!parallel)
		*(void **)&parallel = dlsym(RTLD_NEXT, "GOMP_parallel");
	if (!threads && !omp_in_parallel())
		follow();
	parallel(body, data, threads, flags);
}
