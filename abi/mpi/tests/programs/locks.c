/* Lock-unlock: exclusion, sharing, several targets, lock-all, all flushes, sync, NOCHECK, no_locks. */
#include "check.h"
#include <unistd.h>

/* Read, wait, write: only exclusion keeps the count right. */
static void exclusion(MPI_Win win, int *memory)
{
	int value, rounds = 10;

	memory[0] = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	for (int round = 0; round < rounds; round++) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		MPI_Get(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
		MPI_Win_flush(0, win);
		value++;
		if (round == 3)
			usleep(1000);
		MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
		MPI_Win_unlock(0, win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	MPI_Get(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
	MPI_Win_unlock(0, win);
	CHECK_EQUAL(value, size * rounds);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* A target that makes no MPI call still lets other ranks access its window. */
static void passive(MPI_Win win, int *memory)
{
	int value = 42 + rank;

	memory[1] = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == size - 1 && size > 1) {
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
		MPI_Put(&value, 1, MPI_INT, 0, 1, 1, MPI_INT, win);
		MPI_Win_unlock(0, win);
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
		MPI_Get(&value, 1, MPI_INT, 0, 1, 1, MPI_INT, win);
		MPI_Win_unlock(0, win);
		CHECK_EQUAL(value, 42 + rank);
	} else if (rank == 0) {
		usleep(50000);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

static void everything(MPI_Win win, int *memory)
{
	int value, got;

	memory[2] = memory[3] = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	value = 10 + rank;
	MPI_Put(&value, 1, MPI_INT, right(), 2, 1, MPI_INT, win);
	MPI_Win_flush_local(right(), win);
	value = 0; /* the origin may be reused */
	MPI_Win_flush(right(), win);
	MPI_Get(&got, 1, MPI_INT, right(), 2, 1, MPI_INT, win);
	MPI_Win_flush_local_all(win);
	CHECK_EQUAL(got, 10 + rank);
	value = 20 + rank;
	MPI_Put(&value, 1, MPI_INT, left(), 3, 1, MPI_INT, win);
	MPI_Win_flush_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_sync(win);
	CHECK_EQUAL(memory[2], 10 + left());
	CHECK_EQUAL(memory[3], 20 + right());
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);

	/* locks on all targets one by one, held together */
	for (int other = 0; other < size; other++)
		MPI_Win_lock(MPI_LOCK_SHARED, other, 0, win);
	for (int other = 0; other < size; other++) {
		value = 1;
		MPI_Accumulate(&value, 1, MPI_INT, other, 2, 1, MPI_INT, MPI_SUM, win);
		MPI_Win_flush_local(other, win);
	}
	for (int other = size; other-- > 0;)
		MPI_Win_unlock(other, win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, MPI_MODE_NOCHECK, win);
	CHECK_EQUAL(memory[2], 10 + left() + size);
	MPI_Win_unlock(rank, win);
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	int *memory, *own;
	MPI_Win win;
	MPI_Info info;

	begin(&argc, &argv);
	own = calloc(16, sizeof(int));
	MPI_Win_create(own, 16 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	exclusion(win, own);
	passive(win, own);
	everything(win, own);
	MPI_Win_free(&win);
	free(own);
	MPI_Win_allocate(16 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	exclusion(win, memory);
	passive(win, memory);
	everything(win, memory);
	MPI_Win_free(&win);

	/* a window that is never locked still has fences */
	MPI_Info_create(&info);
	MPI_Info_set(info, "no_locks", "true");
	MPI_Win_allocate(sizeof(int), 1, info, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_fence(0, win);
	MPI_Put(&rank, 1, MPI_INT, right(), 0, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	CHECK_EQUAL(*memory, left());
	MPI_Win_free(&win);
	MPI_Info_free(&info);
	return end("locks");
}
