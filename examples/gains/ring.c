// An MPI program: 300 times each rank sends a number to the next one, and all ranks add up.
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	int rank, ranks, got = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
	double begin = MPI_Wtime(), mine = 0, sum;
	for (int step = 0; step < 300; step++) {
		MPI_Sendrecv(&step, 1, MPI_INT, next, 0, &got, 1, MPI_INT, previous, 0, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		mine += got;
		MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	}
	if (rank == 0)
		printf("%d ranks, 300 steps: %.3f s\n", ranks, MPI_Wtime() - begin);
	MPI_Finalize();
	return 0;
}
