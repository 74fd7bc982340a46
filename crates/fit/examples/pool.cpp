// A pool of std::thread::hardware_concurrency() threads that meet at a barrier of C++20 after each part of the
// work: COUNT times, LENGTH steps shared among the threads. No variable changes its number of threads.
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 2000;
	long length = argc > 2 ? atol(argv[2]) : 100000;
	unsigned threads = std::thread::hardware_concurrency();
	std::barrier<> meeting(threads);
	auto work = [&](unsigned) {
		volatile double sum = 0;
		for (long round = 0; round < count; round++) {
			for (long step = 0; step < length / threads; step++)
				sum = sum + step * 1e-9;
			meeting.arrive_and_wait();
		}
	};
	std::vector<std::jthread> pool;
	for (unsigned thread = 0; thread < threads; thread++)
		pool.emplace_back(work, thread);
	return 0;
}
