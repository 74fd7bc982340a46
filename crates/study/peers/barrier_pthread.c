/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * BARRIER over pthread_barrier_wait: blocks at once in a futex.
 */
#include "bench.h"
#include <gnu/libc-version.h>
#include <pthread.h>

static struct options options;
static struct meter *meter;
static double rounds_per_ns;
static pthread_barrier_t barrier;

static void *participate(void *index)
{
	int thread = (int)(intptr_t)index;

	BARRIER_PROGRAM(&options, meter, thread, rounds_per_ns, pthread_barrier_wait(&barrier));
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MAX_THREADS];
	char version[64];
	struct label label = { "pthread", version, "pthread_barrier", "block", 1, 0, 0 };

	snprintf(version, sizeof(version), "glibc %s", gnu_get_libc_version());
	options = parse_options(argc, argv);
	print_draws_if_asked(&options);
	rounds_per_ns = calibrate();
	pthread_barrier_init(&barrier, NULL, (unsigned)options.threads);
	meter = meter_new(&options);
	for (int t = 1; t < options.threads; t++) {
		int error = pthread_create(&threads[t], NULL, participate, (void *)(intptr_t)t);

		if (error) {
			fprintf(stderr, "cannot start participant %d: %s\n", t, strerror(error));
			return 1;
		}
	}
	participate((void *)(intptr_t)0);
	for (int t = 1; t < options.threads; t++)
		pthread_join(threads[t], NULL);
	write_result(&options, meter, &label, rounds_per_ns);
	return 0;
}
