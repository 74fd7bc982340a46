/* The request-based forms: completed by wait, waitall, waitany, test; requests with MPI_PROC_NULL. */
#include "check.h"

int main(int argc, char **argv)
{
	enum { N = 1000 };
	int *memory, origin[N], got[N], fetched[N], to;
	MPI_Win win;
	MPI_Request request, several[3];
	MPI_Status status, statuses[3];

	begin(&argc, &argv);
	to = right();
	MPI_Win_allocate(N * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	for (int i = 0; i < N; i++) {
		origin[i] = rank * N + i;
		memory[i] = 0;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);

	MPI_Rput(origin, N, MPI_INT, to, 0, N, MPI_INT, win, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	CHECK(request == MPI_REQUEST_NULL);
	MPI_Win_flush(to, win);
	MPI_Rget(got, N, MPI_INT, to, 0, N, MPI_INT, win, &request);
	int done = 0;
	while (!done)
		MPI_Test(&request, &done, &status);
	CHECK(memcmp(got, origin, sizeof got) == 0);
	MPI_Barrier(MPI_COMM_WORLD);

	for (int i = 0; i < N; i++)
		got[i] = fetched[i] = -1;
	MPI_Raccumulate(origin, N / 2, MPI_INT, to, 0, N / 2, MPI_INT, MPI_SUM, win, &several[0]);
	MPI_Rget_accumulate(origin + N / 2, N / 2, MPI_INT, fetched, N / 2, MPI_INT, to, N / 2, N / 2,
			    MPI_INT, MPI_SUM, win, &several[1]);
	MPI_Rget(got, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win, &several[2]);
	MPI_Waitall(3, several, statuses);
	CHECK_EQUAL(got[0], -1);
	for (int i = 0; i < N / 2; i++)
		CHECK_EQUAL(fetched[i], origin[N / 2 + i]);
	MPI_Win_flush(to, win);
	MPI_Rget(got, N, MPI_INT, to, 0, N, MPI_INT, win, &request);
	MPI_Waitany(1, &request, &done, &status);
	for (int i = 0; i < N; i++)
		CHECK_EQUAL(got[i], 2 * origin[i]);

	MPI_Rput(origin, N, MPI_INT, to, 0, N, MPI_INT, win, &request);
	MPI_Wait(&request, &status);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	for (int i = 0; i < N; i++)
		CHECK_EQUAL(memory[i], left() * N + i);
	MPI_Win_unlock(rank, win);
	MPI_Win_free(&win);
	return end("requests");
}
