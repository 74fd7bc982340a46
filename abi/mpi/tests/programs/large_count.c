/* The forms with MPI_Count, where the MPI has them. */
#include "check.h"

int main(int argc, char **argv)
{
	begin(&argc, &argv);
#if MPI_VERSION >= 4
	long *memory, origin[8], got[8], *shared;
	int zero = 0;
	MPI_Win win;
	MPI_Request request;
	MPI_Aint bytes, unit;

	for (int i = 0; i < 8; i++)
		origin[i] = 10 * rank + i;
	MPI_Win_allocate_c(sizeof origin, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	memset(memory, 0, sizeof origin);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	MPI_Put_c(origin, 4, MPI_LONG, right(), 0, 4, MPI_LONG, win);
	MPI_Accumulate_c(origin + 4, 2, MPI_LONG, right(), 4, 2, MPI_LONG, MPI_SUM, win);
	MPI_Get_accumulate_c(origin + 6, 1, MPI_LONG, got, 1, MPI_LONG, right(), 6, 1, MPI_LONG, MPI_SUM,
			     win);
	MPI_Rput_c(origin + 7, 1, MPI_LONG, right(), 7, 1, MPI_LONG, win, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Win_flush_all(win);
	MPI_Get_c(got, 8, MPI_LONG, right(), 0, 8, MPI_LONG, win);
	MPI_Win_flush(right(), win);
	CHECK(memcmp(got, origin, sizeof got) == 0);
	MPI_Rget_c(got, 8, MPI_LONG, right(), 0, 8, MPI_LONG, win, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Raccumulate_c(origin, 1, MPI_LONG, right(), 0, 1, MPI_LONG, MPI_SUM, win, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Rget_accumulate_c(NULL, 0, MPI_LONG, got, 1, MPI_LONG, right(), 1, 1, MPI_LONG, MPI_NO_OP, win,
			      &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	CHECK_EQUAL(got[0], origin[1]);
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);

	MPI_Win_create_c(origin, sizeof origin, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_fence(0, win);
	MPI_Win_fence(0, win);
	MPI_Win_free(&win);

	MPI_Comm host;
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
	MPI_Win_allocate_shared_c(sizeof(long), sizeof(long), MPI_INFO_NULL, host, &memory, &win);
	MPI_Win_shared_query_c(win, zero, &bytes, &unit, &shared);
	CHECK_EQUAL(bytes, sizeof(long));
	CHECK_EQUAL(unit, sizeof(long));
	MPI_Win_free(&win);
	MPI_Comm_free(&host);
#endif
	return end("large_count");
}
