/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Heat in a plate: red-black Gauss-Seidel on a square grid, one parallel region,
 * a barrier after each color (two an iteration, some 50 us apart with two threads
 * and the default size). The result does not depend on the number of threads: a
 * cell reads only cells of the other color.
 *
 * The same computation, bit for bit, as crates/workload/src/kernel/stencil.rs.
 */
#include "openmp.h"

#define DEFAULT_SIZE 512

static double *grid;
static int size;

static void sweep_row(int row, int colour)
{
	int width = size + 2;
	double *here = grid + (size_t)row * width;
	const double *up = here - width, *down = here + width;

	for (int column = 1 + (row + 1 + colour) % 2; column <= size; column += 2)
		here[column] = 0.25 * (((up[column] + down[column]) + here[column - 1]) + here[column + 1]);
}

int main(int argc, char **argv)
{
	static struct options options;
	struct meter *meter;
	char name[96];
	struct label label = { name, RUNTIME_VERSION, "omp for", wait_policy(), 2, 0, 1 };
	int width;

	snprintf(name, sizeof(name), "stencil-%s", runtime_name());
	options = parse_options(argc, argv);
	size = options.size ? options.size : DEFAULT_SIZE;
	width = size + 2;
	grid = (double *)malloc(sizeof(*grid) * (size_t)width * (size_t)width);
	if (!grid) {
		fprintf(stderr, "out of memory for a grid of %d x %d\n", width, width);
		return 1;
	}
	for (int row = 0; row < width; row++)
		for (int column = 0; column < width; column++)
			grid[(size_t)row * width + column] =
				row == 0					       ? 1.0
				: row == size + 1 || column == 0 || column == size + 1 ? 0.0
										       : 0.5;
	omp_set_dynamic(0);
	meter = meter_new(&options);
#pragma omp parallel num_threads(options.threads)
	{
		int thread = omp_get_thread_num();

		check_team(&options);
		pin_participant(&options, thread);
		for (uint64_t e = 1;; e++) {
			if (thread == 0 && e >= meter->next && meter_read(meter, e))
				__atomic_store_n(&shared_run.last_episode, e, __ATOMIC_RELAXED);
			for (int colour = 0; colour < 2; colour++) {
#pragma omp for schedule(static)
				for (int row = 1; row <= size; row++)
					sweep_row(row, colour);
			}
			__atomic_store_n(&shared_run.iterations[thread].value, e, __ATOMIC_RELAXED);
			if (__atomic_load_n(&shared_run.last_episode, __ATOMIC_RELAXED) == e)
				break;
		}
	}
	for (int row = 1; row <= size; row++)
		for (int column = 1; column <= size; column++)
			label.checksum += grid[(size_t)row * width + column];
	write_result(&options, meter, &label, 0);
	return 0;
}
