/*
 * A job of which rank 0 may run without 'unisono mpi': barriers and messages of all ranks, and windows of all
 * and of the others.
 */
#include "check.h"

static void use(MPI_Comm comm)
{
	int own, members, sum, *part;
	MPI_Win win;

	MPI_Comm_rank(comm, &own);
	MPI_Comm_size(comm, &members);
	for (int i = 0; i < 7; i++)
		MPI_Barrier(comm);
	MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm);
	CHECK_EQUAL(sum, members * (members - 1) / 2);
	MPI_Win_allocate(64, 4, MPI_INFO_NULL, comm, &part, &win);
	MPI_Win_fence(0, win);
	MPI_Put(&own, 1, MPI_INT, (own + 1) % members, 0, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	CHECK_EQUAL(*part, (own + members - 1) % members);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	MPI_Comm others;

	begin(&argc, &argv);
	MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, rank, &others);
	use(MPI_COMM_WORLD);
	if (others != MPI_COMM_NULL) {
		use(others);
		MPI_Comm_free(&others);
	}
	return end("partly");
}
