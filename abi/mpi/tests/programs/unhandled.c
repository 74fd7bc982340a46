/* An error without a handler: rank 1 puts beyond the end of a window. */
#include "check.h"

int main(int argc, char **argv)
{
	int *memory, value = 1;
	MPI_Win win;

	begin(&argc, &argv);
	MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_fence(0, win);
	if (rank == 1)
		MPI_Put(&value, 1, MPI_INT, 0, 4, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	MPI_Win_free(&win);
	return end("unhandled");
}
