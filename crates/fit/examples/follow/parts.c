/* A program that OpenMP allows and that must not be followed: it asks once for the number of threads, and
 * gives each thread its part. With fewer threads than that, parts of the sum are missing. Argument: rounds.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	enum { LENGTH = 4096 };
	long rounds = argc > 1 ? atol(argv[1]) : 100000;
	int threads = omp_get_max_threads();
	long *part = calloc((size_t)threads, sizeof *part);
	long sum = 0;

	if (!part)
		return 2;
	for (long round = 0; round < rounds; round++) {
#pragma omp parallel
		{
			int own = omp_get_thread_num();

			for (int i = own * LENGTH / threads; i < (own + 1) * LENGTH / threads; i++)
				part[own] += 1 + (i & 0);
		}
	}
	for (int own = 0; own < threads; own++)
		sum += part[own];
	printf("%s: %.1f %% of the sum\n", sum == rounds * LENGTH ? "right" : "WRONG",
	       100.0 * (double)sum / ((double)rounds * LENGTH));
	free(part);
	return sum != rounds * LENGTH;
}
