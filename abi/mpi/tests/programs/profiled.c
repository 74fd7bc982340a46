/* A profiling tool in the sense of MPI: it defines MPI_X, counts, and calls PMPI_X. */
#include "check.h"

static int puts_seen, fences_seen, barriers_seen, finalized_with;

int MPI_Put(const void *origin, int origin_count, MPI_Datatype origin_type, int to, MPI_Aint place, int count,
	    MPI_Datatype type, MPI_Win win)
{
	puts_seen++;
	return PMPI_Put(origin, origin_count, origin_type, to, place, count, type, win);
}
int MPI_Win_fence(int assert, MPI_Win win)
{
	fences_seen++;
	return PMPI_Win_fence(assert, win);
}
int MPI_Barrier(MPI_Comm comm)
{
	barriers_seen++;
	return PMPI_Barrier(comm);
}
int MPI_Finalize(void)
{
	finalized_with = puts_seen;
	return PMPI_Finalize();
}

int main(int argc, char **argv)
{
	int *memory;
	MPI_Win win;

	begin(&argc, &argv);
	MPI_Win_allocate(16, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	for (int i = 0; i < 10; i++) {
		MPI_Win_fence(0, win);
		MPI_Put(&i, 1, MPI_INT, right(), 0, 1, MPI_INT, win);
		MPI_Win_fence(0, win);
		CHECK_EQUAL(*memory, i);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_free(&win);
	CHECK_EQUAL(puts_seen, 10);
	CHECK_EQUAL(fences_seen, 20);
	CHECK_EQUAL(barriers_seen, 10);
	return end("profiled");
}
