/* Requests that are freed before they are complete: their operations complete with the epoch. */
#include "check.h"

/* On a dynamic window, where requests are incomplete; some of them are freed, and their handles used again.
 */
static void many(void)
{
	enum { MANY = 100 };
	static int exposed[MANY];
	int sent[MANY], got[MANY];
	MPI_Aint here, there;
	MPI_Request request;
	MPI_Win win;

	MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_attach(win, exposed, sizeof exposed);
	MPI_Get_address(exposed, &here);
	MPI_Sendrecv(&here, 1, MPI_AINT, left(), 0, &there, 1, MPI_AINT, right(), 0, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	for (int round = 0; round < 10; round++) {
		MPI_Win_lock(MPI_LOCK_SHARED, right(), 0, win);
		for (int i = 0; i < MANY; i++) {
			sent[i] = 1000 * rank + 100 * round + i;
			MPI_Rput(&sent[i], 1, MPI_INT, right(), there + i * sizeof(int), 1, MPI_INT, win,
				 &request);
			if (i % 3)
				MPI_Request_free(&request);
			else
				MPI_Wait(&request, MPI_STATUS_IGNORE);
		}
		MPI_Win_flush(right(), win);
		for (int i = 0; i < MANY; i++) {
			MPI_Rget(&got[i], 1, MPI_INT, right(), there + i * sizeof(int), 1, MPI_INT, win,
				 &request);
			if (i % 2)
				MPI_Request_free(&request);
			else
				MPI_Wait(&request, MPI_STATUS_IGNORE);
		}
		MPI_Win_unlock(right(), win);
		CHECK(memcmp(got, sent, sizeof got) == 0);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_detach(win, exposed);
	MPI_Win_free(&win);
}

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
	many();
	return end("requests_freed");
}
