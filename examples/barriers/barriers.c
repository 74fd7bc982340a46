/*
 * Measures MPI_Barrier on MPI_COMM_WORLD in ROUNDS rounds that last about SECONDS each. Prints the time of a
 * barrier in microseconds, and per rank and barrier the processor time, the context switches, and the frames
 * of its host. The last two depend little on what runs beside.
 *
 *	barriers SECONDS ROUNDS
 *
 * It ends without MPI_Finalize, because MPICH 4.0 often hangs there over UCX's TCP, and MPI_Abort ends all
 * ranks.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static double context_switches(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return (double)(used.ru_nvcsw + used.ru_nivcsw);
}

/* Returns the frames that this host has sent and received, on all devices but the loopback. */
static double frames(void)
{
	FILE *file = fopen("/proc/self/net/dev", "r");
	double sum = 0, received, sent;
	char line[512];

	while (file && fgets(line, sizeof line, file)) {
		char *colon = strchr(line, ':');

		if (colon && !strstr(line, "lo:") &&
		    sscanf(colon + 1, "%*s %lf %*s %*s %*s %*s %*s %*s %*s %lf", &received, &sent) == 2)
			sum += received + sent;
	}
	if (file)
		fclose(file);
	return sum;
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
		double times[4], sums[4], before, before_switches = context_switches(),
						  before_frames = frames();

		before = processor_time();
		times[0] = run(barriers);
		times[1] = processor_time() - before;
		times[2] = context_switches() - before_switches;
		times[3] = frames() - before_frames;
		MPI_Reduce(times, sums, 4, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
		if (rank == 0) {
			printf("barrier %.3f us, processor %.3f us, switches %.2f, frames %.2f, n %d\n",
			       1e6 * sums[0] / size / barriers, 1e6 * sums[1] / size / barriers,
			       sums[2] / size / barriers, sums[3] / size / barriers, barriers);
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
