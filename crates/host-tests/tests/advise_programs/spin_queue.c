/* Works like an inference server: a model that is asked 50 times a second and takes 2 ms of one thread, while
 * another thread of its pool spins on the empty queue all the time. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static atomic_int stop;

static void *spin(void *unused)
{
	while (!atomic_load(&stop))
		;
	return unused;
}

int main(void)
{
	struct timespec pause = { 0, 18000000 };
	pthread_t other;
	volatile double sum = 0;

	pthread_create(&other, NULL, spin, NULL);
	for (int request = 0; request < 20; request++) {
		nanosleep(&pause, NULL);
		for (int step = 0; step < 1000000; step++)
			sum = sum + step * 1e-9;
	}
	atomic_store(&stop, 1);
	pthread_join(other, NULL);
	return 0;
}
