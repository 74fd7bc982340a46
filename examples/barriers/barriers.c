/*
 * Measures MPI_Barrier on MPI_COMM_WORLD: prints the time of a barrier in microseconds, and the processor
 *time that a rank spends on it, in ROUNDS rounds that last about SECONDS each.
 *
 *	barriers SECONDS ROUNDS
 *
 * It ends without MPI_Finalize, because MPICH 4.0 often hangs there over UCX's TCP, and MPI_Abort ends all
 *ranks.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* Enough for 'unisono mpi' to plan its tree, which it does at the fourth barrier. */
enum { WARM_UP = 10 };

static double processor_time(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
	       1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Returns the seconds that some barriers took this rank. */
static double run(int barriers)
{
	double begun = MPI_Wtime();

	for (int i = 0; i < barriers; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	return MPI_Wtime() - begun;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	int rounds = argc > 2 ? atoi(argv[2]) : 5, rank, size, barriers;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	run(WARM_UP);
	barriers = (int)(seconds * WARM_UP / run(WARM_UP)) + 1;
	MPI_Bcast(&barriers, 1, MPI_INT, 0, MPI_COMM_WORLD);
	for (int round = 0; round < rounds; round++) {
		double before = processor_time(), times[2], sums[2];

		times[0] = run(barriers);
		times[1] = processor_time() - before;
		MPI_Reduce(times, sums, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
		if (rank == 0) {
			printf("barrier %.3f us, processor %.3f us, n %d\n", 1e6 * sums[0] / size / barriers,
			       1e6 * sums[1] / size / barriers, barriers);
			fflush(stdout);
		}
	}
	if (rank == 0) {
		printf("done\n");
		fflush(stdout);
		sleep(1); /* the launcher reads the lines */
		MPI_Abort(MPI_COMM_WORLD, 0);
	}
	pause();
	return 0;
}
