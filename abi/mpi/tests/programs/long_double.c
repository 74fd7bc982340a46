/* Accumulates of long doubles, which few processors and no network can combine. */
#include "check.h"

int main(int argc, char **argv)
{
	long double *memory, value = 3;
	MPI_Win win;

	begin(&argc, &argv);
	MPI_Win_allocate(4 * sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	memory[0] = 4;
	MPI_Win_fence(0, win);
	MPI_Accumulate(&value, 1, MPI_LONG_DOUBLE, right(), 0, 1, MPI_LONG_DOUBLE, MPI_SUM, win);
	MPI_Win_fence(0, win);
	CHECK(memory[0] == 7);
	MPI_Put(&value, 1, MPI_LONG_DOUBLE, right(), 1, 1, MPI_LONG_DOUBLE, win);
	MPI_Win_fence(0, win);
	CHECK(memory[1] == 3);
	MPI_Win_free(&win);
	return end("long_double");
}
