/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * BARRIER over `omp barrier`, as in the paper's Figure 1.
 */
#include "openmp.h"

int main(int argc, char **argv)
{
	static struct options options;
	struct meter *meter;
	double rounds_per_ns;
	struct label label = { runtime_name(), RUNTIME_VERSION, "omp barrier", wait_policy(), 1, 0, 0 };

	options = parse_options(argc, argv);
	print_draws_if_asked(&options);
	rounds_per_ns = calibrate();
	omp_set_dynamic(0);
	meter = meter_new(&options);
#pragma omp parallel num_threads(options.threads)
	{
		int thread = omp_get_thread_num();

		check_team(&options);
		BARRIER_PROGRAM(&options, meter, thread, rounds_per_ns, { _Pragma("omp barrier") });
	}
	write_result(&options, meter, &label, rounds_per_ns);
	return 0;
}
