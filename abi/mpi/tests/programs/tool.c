/* A profiling tool in the sense of MPI: it defines MPI_X, counts, and calls PMPI_X. */
#include <mpi.h>
#include <stdio.h>

static int puts_seen, fences_seen;

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

int MPI_Finalize(void)
{
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	fprintf(stderr, "tool: rank %d: %d puts, %d fences\n", rank, puts_seen, fences_seen);
	return PMPI_Finalize();
}
