/* Starts the given command between epochs of a window: the command is not part of the MPI job. */
#include "check.h"

int main(int argc, char **argv)
{
	int *memory;
	MPI_Win win;

	begin(&argc, &argv);
	MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	for (int round = 0; round < 3; round++) {
		int value = 10 * round + rank;

		MPI_Win_fence(0, win);
		MPI_Put(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, win);
		if (argc > 1 && round == 1)
			CHECK_EQUAL(system(argv[1]), 0);
		MPI_Win_fence(0, win);
		CHECK_EQUAL(*memory, 10 * round + left());
	}
	MPI_Win_free(&win);
	return end("starts");
}
