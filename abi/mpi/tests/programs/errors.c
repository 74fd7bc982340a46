/* Forbidden calls, and the error class of each; afterwards the window still works. */
#include "check.h"

int main(int argc, char **argv)
{
	int *memory, value = 1;
	MPI_Win win;

	begin(&argc, &argv);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	CHECK_CLASS(MPI_Win_create(&value, -4, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_ERR_SIZE);
	CHECK_CLASS(MPI_Win_create(&value, 4, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_ERR_DISP);
	MPI_Win_allocate(8 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);

	/* outside any epoch */
	CHECK_CLASS(MPI_Put(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_unlock(right(), win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_complete(win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_wait(win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_flush(right(), win), MPI_ERR_RMA_SYNC);

	/* wrong arguments inside an epoch */
	MPI_Win_lock(MPI_LOCK_SHARED, right(), 0, win);
	CHECK_CLASS(MPI_Put(&value, 1, MPI_INT, size, 0, 1, MPI_INT, win), MPI_ERR_RANK);
	CHECK_CLASS(MPI_Put(&value, 1, MPI_INT, -77, 0, 1, MPI_INT, win), MPI_ERR_RANK);
	CHECK_CLASS(MPI_Put(&value, -1, MPI_INT, right(), 0, 1, MPI_INT, win), MPI_ERR_COUNT);
	CHECK_CLASS(MPI_Put(&value, 1, MPI_DATATYPE_NULL, right(), 0, 1, MPI_INT, win), MPI_ERR_TYPE);
	CHECK_CLASS(MPI_Put(&value, 1, MPI_INT, right(), -1, 1, MPI_INT, win), MPI_ERR_DISP);
	CHECK_CLASS(MPI_Put(&value, 1, MPI_INT, right(), 8, 1, MPI_INT, win), MPI_ERR_RMA_RANGE);
	CHECK_CLASS(MPI_Accumulate(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, MPI_OP_NULL, win), MPI_ERR_OP);
	CHECK_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, right(), 0, win), MPI_ERR_RMA_SYNC);
	CHECK_CLASS(MPI_Win_lock(4711, left(), 0, win), MPI_ERR_LOCKTYPE);
	CHECK_CLASS(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
	CHECK(win != MPI_WIN_NULL);
	MPI_Win_unlock(right(), win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	for (int i = 0; i < 8; i++)
		memory[i] = 0;
	MPI_Win_unlock(rank, win);

	/* flavors */
	CHECK_CLASS(MPI_Win_attach(win, &value, sizeof value), MPI_ERR_RMA_FLAVOR);
	MPI_Aint bytes;
	int unit;
	void *base;
	CHECK_CLASS(MPI_Win_shared_query(win, size, &bytes, &unit, &base), MPI_ERR_RANK);

	/* it still works */
	MPI_Win_fence(0, win);
	MPI_Put(&value, 1, MPI_INT, right(), 7, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	CHECK_EQUAL(memory[7], 1);
	CHECK_EQUAL(memory[0], 0);

	/* a window freed twice */
	MPI_Win copy = win;
	CHECK_CLASS(MPI_Win_free(&win), MPI_SUCCESS);
	CHECK(win == MPI_WIN_NULL);
	CHECK_CLASS(MPI_Win_free(&copy), MPI_ERR_WIN);
	CHECK_CLASS(MPI_Win_free(&win), MPI_ERR_WIN);
	return end("errors");
}
