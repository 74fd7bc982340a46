/* MPI_PROC_NULL, windows without bytes, communicators of one rank, sub-communicators, many windows. */
#include "check.h"

static void on(MPI_Comm comm)
{
	int me, all, value, got = -1, *memory;
	MPI_Win win;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &all);
	MPI_Win_allocate(2 * sizeof(int), sizeof(int), MPI_INFO_NULL, comm, &memory, &win);
	value = 10 * me;
	memory[0] = memory[1] = -1;
	MPI_Win_fence(0, win);
	MPI_Put(&value, 1, MPI_INT, (me + 1) % all, 0, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	CHECK_EQUAL(memory[0], 10 * ((me + all - 1) % all));
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, win);
	MPI_Put(&value, 1, MPI_INT, me, 1, 1, MPI_INT, win);
	MPI_Get(&got, 1, MPI_INT, me, 0, 1, MPI_INT, win);
	MPI_Win_unlock(me, win);
	CHECK_EQUAL(memory[1], 10 * me);
	CHECK_EQUAL(got, memory[0]);
	MPI_Win_free(&win);

	value = 20 * me;
	MPI_Win_create(&got, sizeof got, 1, MPI_INFO_NULL, comm, &win);
	MPI_Win_fence(0, win);
	MPI_Put(&value, 1, MPI_INT, (me + 1) % all, 0, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	CHECK_EQUAL(got, 20 * ((me + all - 1) % all));
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	int value = 5, got = 6, *memory;
	MPI_Win win, many[20];
	MPI_Comm half;

	begin(&argc, &argv);
	on(MPI_COMM_SELF);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half); /* in reverse order */
	on(half);
	MPI_Comm_free(&half);
	on(MPI_COMM_WORLD);

	/* only rank 0 has memory; operations of nothing on the others */
	MPI_Win_create(rank == 0 ? &got : NULL, rank == 0 ? sizeof got : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
		       &win);
	MPI_Win_fence(0, win);
	MPI_Put(&value, 0, MPI_INT, right(), 0, 0, MPI_INT, win);
	MPI_Put(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win);
	MPI_Get(&value, 1, MPI_INT, MPI_PROC_NULL, 1000, 1, MPI_INT, win);
	MPI_Accumulate(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, win);
	if (rank == size - 1)
		MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	CHECK_EQUAL(value, 5);
	CHECK_EQUAL(got, rank == 0 ? 5 : 6);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, MPI_PROC_NULL, 0, win);
	MPI_Fetch_and_op(&value, &got, MPI_INT, MPI_PROC_NULL, 0, MPI_SUM, win);
	MPI_Compare_and_swap(&value, &value, &got, MPI_INT, MPI_PROC_NULL, 0, win);
	MPI_Win_unlock(MPI_PROC_NULL, win);
	CHECK_EQUAL(got, rank == 0 ? 5 : 6);
	MPI_Win_free(&win);

	/* no rank has memory */
	MPI_Win_allocate(0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_fence(0, win);
	MPI_Win_fence(0, win);
	MPI_Win_lock_all(0, win);
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);

	/* many at once, freed in another order */
	for (int i = 0; i < 20; i++) {
		MPI_Win_allocate((i + 1) * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
				 &many[i]);
		MPI_Win_fence(0, many[i]);
		value = i;
		MPI_Put(&value, 1, MPI_INT, right(), i, 1, MPI_INT, many[i]);
		MPI_Win_fence(0, many[i]);
		CHECK_EQUAL(memory[i], i);
	}
	for (int i = 0; i < 20; i += 2)
		MPI_Win_free(&many[i]);
	for (int i = 19; i > 0; i -= 2)
		MPI_Win_free(&many[i]);
	return end("edges");
}
