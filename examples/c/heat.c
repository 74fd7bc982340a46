/* The heat equation on a square plate, divided by rows. Each rank's window holds its rows twice (for this
 * step and the next one), with a ghost row above and below. A step puts the first and the last row into the
 * neighbors' ghost rows, and computes in place: the window is ordinary memory.
 *
 * One fence per step is enough: a neighbor that is a step ahead writes ghost rows of the other copy.
 */
#include "example.h"

#include <math.h>

static const double HOT = 100;

static long size = 256, steps = 500, check = 1;

static long first_row(int rank, int ranks)
{
	return size * rank / ranks;
}

/* `rows` rows from `now` to `next`; both have a ghost row above and below. */
static void step(const double *now, double *next, long rows)
{
	for (long row = 1; row <= rows; row++) {
		const double *here = now + row * size, *up = here - size, *down = here + size;

		for (long x = 0; x < size; x++) {
			double left = x == 0 ? 0 : here[x - 1];
			double right = x + 1 == size ? 0 : here[x + 1];

			next[row * size + x] = 0.25 * (up[x] + down[x] + left + right);
		}
	}
}

static void heat_upper_edge(double *plate)
{
	for (long x = 0; x < size; x++)
		plate[x] = HOT;
}

/* The greatest difference between this rank's rows and the sequential solution. */
static double difference(const double *mine, long first, long rows)
{
	double *now = calloc((size + 2) * size, sizeof(*now));
	double *next = calloc((size + 2) * size, sizeof(*next));
	double most = 0;

	if (!now || !next) {
		fprintf(stderr, "no memory for the sequential solution; try --check 0\n");
		exit(1);
	}
	heat_upper_edge(now);
	heat_upper_edge(next);
	for (long i = 0; i < steps; i++) {
		double *other = now;

		step(now, next, size);
		now = next;
		next = other;
	}
	for (long i = 0; i < rows * size; i++)
		most = fmax(most, fabs(mine[size + i] - now[(first + 1) * size + i]));
	free(now);
	free(next);
	return most;
}

int main(int argc, char **argv)
{
	const struct option options[] = {
		{ "--size", "points along each side of the plate", 1, &size },
		{ "--steps", "steps", 0, &steps },
		{ "--check", "1: compare with the sequential solution", 0, &check },
	};
	const char *about = "Solve the heat equation with ghost-row exchange.\n"
			    "Example: unisono run -n 4 ./heat --size 256 --steps 500";
	const unisono_layout *real = unisono_layout_of(UNISONO_ELEMENT_F64);
	unisono_spec spec = { .unit = sizeof(double), .flags = UNISONO_NO_LOCKS };
	unisono_window *window;
	unisono_job *job;
	double *plate, *differences, start, took, most = 0;

	read_options(argc, argv, about, options, 3);
	MUST(unisono_job_join(&job, 30));
	int rank = unisono_job_rank(job), ranks = unisono_job_size(job);
	long first = first_row(rank, ranks), rows = first_row(rank + 1, ranks) - first;
	long above = rank > 0 ? first - first_row(rank - 1, ranks) : 0;
	long copy = (rows + 2) * size, copy_above = (above + 2) * size;
	long below = rank + 1 < ranks ? first_row(rank + 2, ranks) - first - rows : 0;
	long copy_below = (below + 2) * size;

	if (size < ranks) {
		fprintf(stderr, "a plate of %ld rows has none for some of %d ranks; give --size %d\n", size,
			ranks, ranks);
		return 2;
	}
	MUST(unisono_window_allocate(job, 2 * copy * sizeof(double), &spec, (void **)&plate, &window));
	if (rank == 0) {
		heat_upper_edge(plate);
		heat_upper_edge(plate + copy);
	}
	MUST(unisono_job_barrier(job));
	start = seconds_now();
	MUST(unisono_window_fence(window, UNISONO_ASSERT_NO_PRECEDE));
	for (long i = 0; i < steps; i++) {
		double *now = plate + i % 2 * copy, *next = plate + (i + 1) % 2 * copy;

		if (rank > 0) /* my first row is the ghost row below the last one of the rank above */
			MUST(unisono_put(window, now + size, size, real, rank - 1,
					 i % 2 * copy_above + (above + 1) * size, size, real));
		if (rank + 1 < ranks)
			MUST(unisono_put(window, now + rows * size, size, real, rank + 1, i % 2 * copy_below,
					 size, real));
		MUST(unisono_window_fence(window, 0));
		step(now, next, rows);
	}
	MUST(unisono_window_fence(window, UNISONO_ASSERT_NO_SUCCEED));
	took = seconds_now() - start;
	if (check) {
		double mine = difference(plate + steps % 2 * copy, first, rows);

		differences = calloc(ranks, sizeof(*differences));
		if (!differences)
			return 1;
		MUST(unisono_job_gather(job, &mine, sizeof(mine), differences));
		for (int i = 0; i < ranks; i++)
			most = fmax(most, differences[i]);
		free(differences);
	}
	if (rank == 0 && most == 0)
		printf("heat: %ld x %ld points, %ld steps, %d ranks: %.3f s, %.1f us a step%s\n", size, size,
		       steps, ranks, took, took * 1e6 / (steps ? steps : 1),
		       check ? "; equal to the sequential solution" : "");
	MUST(unisono_window_free(&window));
	MUST(unisono_job_finalize(&job));
	/* the same additions in the same order: the results must be equal bit for bit */
	if (most != 0) {
		fprintf(stderr, "the plate differs from the sequential solution by up to %g\n", most);
		return 1;
	}
	return 0;
}
