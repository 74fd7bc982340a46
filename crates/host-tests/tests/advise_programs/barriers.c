/* Ranks that compute for 20 us and meet at a barrier, as many times as the argument says. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 10000;

	MPI_Init(&argc, &argv);
	for (long round = 0; round < count; round++) {
		double start = MPI_Wtime();
		while (MPI_Wtime() - start < 20e-6)
			;
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Finalize();
	return 0;
}
