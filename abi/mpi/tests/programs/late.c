/*
 * Rank 1 is late by 300 ms in each synchronization, once: the statistics show rank 0's wait. The delay begins
 * when rank 0 says that it is about to wait, because a busy machine may delay rank 0 as well. Two ranks also
 * add long rows to rank 0's part at the same time, so that one always waits for the other. Three ranks.
 */
#include "check.h"
#include <unistd.h>

enum { LATE_US = 300000, LONG = 1 << 20 };

static MPI_Win make(const char *name)
{
	MPI_Win win;
	double *memory;

	MPI_Win_allocate(rank == 0 ? LONG * sizeof(double) : 16, sizeof(double), MPI_INFO_NULL,
			 MPI_COMM_WORLD, &memory, &win);
	MPI_Win_set_name(win, name);
	return win;
}

/* Rank 1 returns late, and rank 0 at once. */
static void be_late(void)
{
	if (rank == 0 && size > 1)
		MPI_Send(NULL, 0, MPI_INT, 1, 1, MPI_COMM_WORLD);
	if (rank != 1)
		return;
	MPI_Recv(NULL, 0, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	usleep(LATE_US);
}

int main(int argc, char **argv)
{
	double *row, one = 1;
	MPI_Win win;
	MPI_Group world, other;

	begin(&argc, &argv);
	row = calloc(LONG, sizeof *row);
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, (int[]){ rank == 0 && size > 1 }, &other);

	win = make("fence");
	MPI_Win_fence(0, win);
	MPI_Put(&one, 1, MPI_DOUBLE, right(), 0, 1, MPI_DOUBLE, win);
	be_late();
	MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
	MPI_Win_free(&win);

	win = make("pscw");
	if (rank == 0 && size > 1) {
		MPI_Win_post(other, 0, win);
		be_late();
		MPI_Win_wait(win);
	} else if (rank == 1) {
		MPI_Win_start(other, 0, win);
		MPI_Put(&one, 1, MPI_DOUBLE, 0, 0, 1, MPI_DOUBLE, win);
		be_late();
		MPI_Win_complete(win);
	}
	MPI_Win_free(&win);

	win = make("lock");
	if (rank == 1) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
		MPI_Put(&one, 1, MPI_DOUBLE, 1, 0, 1, MPI_DOUBLE, win);
		MPI_Win_flush(1, win);
	}
	/* by a message, because a barrier may be rank 1's next call of the job */
	if (rank == 1)
		MPI_Send(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD);
	if (rank == 1) {
		usleep(LATE_US);
		MPI_Win_unlock(1, win);
	} else if (rank == 0 && size > 1) {
		MPI_Recv(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
		MPI_Put(&one, 1, MPI_DOUBLE, 1, 0, 1, MPI_DOUBLE, win);
		MPI_Win_unlock(1, win);
	}
	MPI_Win_free(&win);

	/* no rank holds an exclusive lock, so a rank that waits here waits for another rank's accumulate */
	win = make("gate");
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (int round = 0; round < 10 && rank > 0; round++)
		MPI_Accumulate(row, LONG, MPI_DOUBLE, 0, 0, LONG, MPI_DOUBLE, MPI_SUM, win);
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);

	free(row);
	MPI_Group_free(&other);
	MPI_Group_free(&world);
	return end("late");
}
