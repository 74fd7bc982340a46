/* MPI_Barrier on the world, its halves, and a duplicate, between messages; no rank leaves before all have
 * entered. */
#include "check.h"
#include <unistd.h>

static void hold(MPI_Comm comm)
{
	int me, all, *arrived, together;
	MPI_Win win;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &all);
	MPI_Win_allocate(all * sizeof(int), sizeof(int), MPI_INFO_NULL, comm, &arrived, &win);
	for (int i = 0; i < all; i++)
		arrived[i] = -1;
	MPI_Barrier(comm);
	MPI_Win_lock_all(0, win);
	for (int round = 0; round < 200; round++) {
		if (round % 50 == me)
			usleep(1000);
		for (int other = 0; other < all; other++)
			MPI_Put(&round, 1, MPI_INT, other, me, 1, MPI_INT, win);
		MPI_Win_flush_all(win);
		MPI_Barrier(comm);
		MPI_Win_sync(win);
		for (int other = 0; other < all; other++)
			CHECK(arrived[other] >= round);
		if (round % 20 == 0) {
			MPI_Allreduce(&me, &together, 1, MPI_INT, MPI_SUM, comm);
			CHECK_EQUAL(together, all * (all - 1) / 2);
		}
		MPI_Barrier(comm);
	}
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	MPI_Comm comm;

	begin(&argc, &argv);
	hold(MPI_COMM_WORLD);
	hold(MPI_COMM_SELF);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm);
	hold(comm);
	MPI_Comm_free(&comm);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	for (int i = 0; i < 50; i++) {
		MPI_Barrier(comm);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Comm_free(&comm);
	for (int i = 0; i < 20; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		MPI_Barrier(comm);
		MPI_Comm_free(&comm);
	}
	return end("barrier");
}
