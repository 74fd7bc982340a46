/*
 * Half of a process with two MPIs: a shared library that is linked to one of them. half() uses a window of
 * that MPI, and returns 0 if all checks pass. two_mpis_main.c opens two such libraries.
 */
#include <mpi.h>
#include <stddef.h>

int half(void)
{
	int *memory, value = 41, size;
	MPI_Win win;

	if (MPI_Init(NULL, NULL) || MPI_Comm_size(MPI_COMM_WORLD, &size) || size != 1)
		return 1;
	if (MPI_Win_allocate(2 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_SELF, &memory, &win))
		return 2;
	memory[1] = 0;
	MPI_Win_fence(0, win);
	MPI_Put(&value, 1, MPI_INT, 0, 1, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	value = memory[1];
	MPI_Win_free(&win);
	MPI_Barrier(MPI_COMM_WORLD);
	return value == 41 && !MPI_Finalize() ? 0 : 3;
}
