/* A known number of epochs, operations and bytes of each synchronization, for the statistics. Two ranks. */
#include "check.h"

int main(int argc, char **argv)
{
	enum { N = 4 };
	int *memory, origin[N] = { 1, 2, 3, 4 }, got[N], one = 1, before;
	MPI_Win win;
	MPI_Group world, other;
	int peer;

	begin(&argc, &argv);
	peer = right();
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, (int[]){ rank == 0 && size > 1 }, &other);
	MPI_Win_allocate(16 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_set_name(win, "counted");

	/* 10 epochs, 30 operations, 10 * (16 + 4 + 4) bytes */
	MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
	for (int i = 0; i < 10; i++) {
		MPI_Put(origin, N, MPI_INT, peer, 0, N, MPI_INT, win);
		MPI_Get(got, 1, MPI_INT, peer, 4, 1, MPI_INT, win);
		MPI_Accumulate(&one, 1, MPI_INT, peer, 8, 1, MPI_INT, MPI_SUM, win);
		MPI_Win_fence(i == 9 ? MPI_MODE_NOSUCCEED : 0, win);
	}

	/* rank 0 exposes, rank 1 accesses: 5 epochs each, 10 operations and 160 bytes of rank 1 */
	for (int i = 0; i < 5 && size > 1; i++) {
		if (rank == 0) {
			MPI_Win_post(other, 0, win);
			MPI_Win_wait(win);
		} else if (rank == 1) {
			MPI_Win_start(other, 0, win);
			MPI_Put(origin, N, MPI_INT, 0, 0, N, MPI_INT, win);
			MPI_Put(origin, N, MPI_INT, 0, 4, N, MPI_INT, win);
			MPI_Win_complete(win);
		}
	}

	/* 7 epochs, 14 operations, 7 * (16 + 4) bytes; then one of lock-all with one operation of 4 bytes */
	for (int i = 0; i < 7; i++) {
		MPI_Win_lock(i % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, peer, 0, win);
		MPI_Put(origin, N, MPI_INT, peer, 0, N, MPI_INT, win);
		MPI_Fetch_and_op(&one, &before, MPI_INT, peer, 12, MPI_SUM, win);
		MPI_Win_unlock(peer, win);
	}
	MPI_Win_lock_all(0, win);
	MPI_Put(origin, 1, MPI_INT, peer, 0, 1, MPI_INT, win);
	MPI_Win_unlock_all(win);
	/* transfers without data are not counted as operations */
	MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
	MPI_Put(origin, 0, MPI_INT, peer, 0, 0, MPI_INT, win);
	MPI_Put(origin, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win);
	MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
	MPI_Group_free(&other);
	MPI_Group_free(&world);
	MPI_Win_free(&win);
	return end("counted");
}
