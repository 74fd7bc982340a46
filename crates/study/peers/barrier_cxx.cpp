/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * BARRIER over C++20 std::barrier. libstdc++: a combining tree of tickets; its
 * waiters spin briefly, then yield, then (for futex-sized words) block.
 */
#include "bench.h"
#include <barrier>
#include <thread>
#include <vector>

int main(int argc, char **argv)
{
	static struct options options = parse_options(argc, argv);
	char version[64];
	struct label label = { "cxx", version, "std::barrier", "spin-yield", 1, 0, 0 };

#ifdef _GLIBCXX_RELEASE
	snprintf(version, sizeof(version), "libstdc++ %d", _GLIBCXX_RELEASE);
#else
	snprintf(version, sizeof(version), "C++ %ld", (long)__cplusplus);
#endif
	print_draws_if_asked(&options);
	double rounds_per_ns = calibrate();
	std::barrier<> barrier(options.threads);
	struct meter *meter = meter_new(&options);
	auto participate = [&](int thread) {
		BARRIER_PROGRAM(&options, meter, thread, rounds_per_ns, barrier.arrive_and_wait());
	};
	std::vector<std::thread> threads;
	for (int t = 1; t < options.threads; t++)
		threads.emplace_back(participate, t);
	participate(0);
	for (auto &thread : threads)
		thread.join();
	write_result(&options, meter, &label, rounds_per_ns);
	return 0;
}
