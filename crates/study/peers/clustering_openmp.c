/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Clustering a stream, after the paper's application: points arrive in batches.
 * For each batch, candidates are tried one after another as new centers, and a
 * center is opened if it saves more than it costs. A round (one candidate) is an
 * iteration with two barriers: all threads add up the saving for their points,
 * then all accept or reject the candidate.
 *
 * Whole numbers throughout, so the result does not depend on the number of
 * threads. The same computation as crates/workload/src/kernel/clustering.rs.
 */
#include "openmp.h"

#define DEFAULT_SIZE 16000 /* points of a batch */
#define DIMENSIONS 32
#define ROUNDS 64 /* candidates of a batch */
#define CLUSTERS 8
#define FAR INT64_C(134217728)
#define CENTRE_COST INT64_C(20000000)

static int32_t *points;
static int64_t *cost;
static int size;

static int64_t distance(const int32_t *a, const int32_t *b)
{
	int32_t sum = 0;

	for (int d = 0; d < DIMENSIONS; d++)
		sum += (a[d] - b[d]) * (a[d] - b[d]);
	return sum;
}

static void draw_points(uint64_t seed)
{
	struct pcg32 g = pcg32_new(seed, 0);
	int32_t base[CLUSTERS][DIMENSIONS];

	for (int c = 0; c < CLUSTERS; c++)
		for (int d = 0; d < DIMENSIONS; d++)
			base[c][d] = (int32_t)(pcg32_next(&g) & 1023);
	for (int p = 0; p < size; p++)
		for (int d = 0; d < DIMENSIONS; d++)
			points[p * DIMENSIONS + d] = base[p % CLUSTERS][d] + (int32_t)(pcg32_next(&g) & 127);
}

/* The candidate of a round: a multiplicative hash, so that rounds need no shared
 * generator. */
static int candidate_of(uint64_t round)
{
	return (int)(((round * UINT64_C(0x9e3779b97f4a7c15)) >> 33) % (uint64_t)size);
}

int main(int argc, char **argv)
{
	static struct options options;
	static struct {
		int64_t value;
		char padding[CACHE_LINE - sizeof(int64_t)];
	} gain[MAX_THREADS] __attribute__((aligned(CACHE_LINE)));
	struct meter *meter;
	char name[96];
	struct label label = { name, RUNTIME_VERSION, "omp barrier", wait_policy(), 2, 0, 1 };

	snprintf(name, sizeof(name), "clustering-%s", runtime_name());
	options = parse_options(argc, argv);
	size = options.size ? options.size : DEFAULT_SIZE;
	points = (int32_t *)malloc(sizeof(*points) * (size_t)size * DIMENSIONS);
	cost = (int64_t *)malloc(sizeof(*cost) * (size_t)size);
	if (!points || !cost) {
		fprintf(stderr, "out of memory for %d points\n", size);
		return 1;
	}
	draw_points(options.seed);
	omp_set_dynamic(0);
	meter = meter_new(&options);
#pragma omp parallel num_threads(options.threads)
	{
		int thread = omp_get_thread_num();
		int first = (int)((int64_t)size * thread / options.threads);
		int end = (int)((int64_t)size * (thread + 1) / options.threads);

		check_team(&options);
		pin_participant(&options, thread);
		for (uint64_t e = 1;; e++) {
			const int32_t *candidate = points + (size_t)candidate_of(e) * DIMENSIONS;
			int64_t saved = 0;

			if (thread == 0 && e >= meter->next && meter_read(meter, e))
				__atomic_store_n(&shared_run.last_episode, e, __ATOMIC_RELAXED);
			if (e % ROUNDS == 1)
				for (int p = first; p < end; p++)
					cost[p] = FAR;
			for (int p = first; p < end; p++) {
				int64_t there = distance(points + (size_t)p * DIMENSIONS, candidate);

				if (there < cost[p])
					saved += cost[p] - there;
			}
			gain[thread].value = saved;
#pragma omp barrier
			saved = 0;
			for (int t = 0; t < options.threads; t++)
				saved += gain[t].value;
			if (saved > CENTRE_COST)
				for (int p = first; p < end; p++) {
					int64_t there = distance(points + (size_t)p * DIMENSIONS, candidate);

					if (there < cost[p])
						cost[p] = there;
				}
#pragma omp barrier
			__atomic_store_n(&shared_run.iterations[thread].value, e, __ATOMIC_RELAXED);
			if (__atomic_load_n(&shared_run.last_episode, __ATOMIC_RELAXED) == e)
				break;
		}
	}
	for (int p = 0; p < size; p++)
		label.checksum += (double)cost[p];
	write_result(&options, meter, &label, 0);
	return 0;
}
