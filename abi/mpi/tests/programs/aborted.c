/* The last rank ends the job. */
#include "check.h"

int main(int argc, char **argv)
{
	int *memory;
	MPI_Win win;

	begin(&argc, &argv);
	MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_fence(0, win);
	if (rank == size - 1)
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Win_fence(0, win);
	MPI_Win_free(&win);
	return end("aborted");
}
