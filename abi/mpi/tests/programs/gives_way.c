/*
 * A call that stays the host's although ranks outnumber the processors: with the argument "sleeps" the ranks
 * that wait in it for a late rank have to sleep.
 */
#define _GNU_SOURCE
#include "check.h"
#include <sys/resource.h>
#include <unistd.h>

static long sleeps(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

int main(int argc, char **argv)
{
	enum { ROUNDS = 8, LATE = 50000, MIN_SLEEPS = 10 }; /* microseconds */
	int one = 1, all = 0;

	begin(&argc, &argv);
	/* here the ranks agree that they outnumber the processors */
	for (int round = 0; round < ROUNDS; round++)
		MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int round = 0; round < ROUNDS; round++) {
		long double own = rank, sum = 0;
		long before;

		if (rank == round % size)
			usleep(LATE);
		before = sleeps();
		MPI_Allreduce(&own, &sum, 1, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		CHECK_EQUAL(sum, size * (size - 1) / 2);
		if (argc > 1 && rank != round % size)
			CHECK(sleeps() - before >= MIN_SLEEPS);
	}
	return end("gives_way");
}
