/* Works like ggml's thread pool: threads that share a computation of 100 us and meet at a barrier at which
 * they only spin. No variable changes their number or their wait. Arguments: threads, rounds. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static int threads;
static long rounds;
static atomic_int arrived;
static atomic_long passed;

static void meet(void)
{
	long round = atomic_load(&passed);

	if (atomic_fetch_add(&arrived, 1) + 1 == threads) {
		atomic_store(&arrived, 0);
		atomic_fetch_add(&passed, 1);
		return;
	}
	while (atomic_load(&passed) == round)
		;
}

static void *work(void *unused)
{
	volatile double sum = 0;

	for (long round = 0; round < rounds; round++) {
		for (int step = 0; step < 100000 / threads; step++)
			sum = sum + step * 1e-9;
		meet();
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t all[64];

	threads = argc > 1 ? atoi(argv[1]) : 2;
	rounds = argc > 2 ? atol(argv[2]) : 100;
	if (threads < 1 || threads > 64)
		return 2;
	for (int number = 0; number < threads; number++)
		pthread_create(&all[number], NULL, work, NULL);
	for (int number = 0; number < threads; number++)
		pthread_join(all[number], NULL);
	return 0;
}
