/* A request that is freed before it is complete: the operation completes with its epoch. */
#include "check.h"

int main(int argc, char **argv)
{
	int *memory, value;
	MPI_Win win;
	MPI_Request request;

	begin(&argc, &argv);
	value = 100 + rank;
	MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right(), 0, win);
	MPI_Rput(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, win, &request);
	MPI_Request_free(&request);
	CHECK(request == MPI_REQUEST_NULL);
	MPI_Win_unlock(right(), win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	CHECK_EQUAL(*memory, 100 + left());
	MPI_Win_unlock(rank, win);
	MPI_Win_free(&win);
	return end("requests_freed");
}
