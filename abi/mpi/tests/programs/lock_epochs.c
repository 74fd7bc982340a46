/*
 * Epochs of one lock and few operations: contended, with flushes inside, with long data, with each kind of
 * lock; the target computes, waits in a barrier, or frees the window at once.
 */
#include "check.h"
#include <unistd.h>

enum { ROUNDS = 20, PLACES = 4, LONG = 1 << 18 };

/* Where the target reads its own memory after a barrier: in the unified model that is enough. */
static int own(const int *memory, int place)
{
	return *(const volatile int *)&memory[place];
}

static void clear(int *memory)
{
	MPI_Barrier(MPI_COMM_WORLD);
	memset(memory, 0, PLACES * sizeof *memory);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* All ranks add to the same places of rank 0: by a value computed under the lock, by several operations at
 * once, and by operations before and after a flush. */
static void contended(MPI_Win win, int *memory)
{
	int one = 1, found[2], before;

	clear(memory);
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		MPI_Get(found, 2, MPI_INT, 0, 0, 2, MPI_INT, win);
		MPI_Win_flush(0, win);
		CHECK_EQUAL(found[0], found[1]);
		found[0]++;
		found[1]++;
		MPI_Put(&found[0], 1, MPI_INT, 0, 0, 1, MPI_INT, win);
		MPI_Put(&found[1], 1, MPI_INT, 0, 1, 1, MPI_INT, win);
		MPI_Win_unlock(0, win);

		MPI_Win_lock(round % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, 0, 0, win);
		MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win);
		MPI_Accumulate(&one, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_SUM, win);
		MPI_Win_unlock(0, win);

		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win);
		MPI_Win_flush_local(0, win);
		MPI_Get_accumulate(&one, 1, MPI_INT, &before, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_SUM, win);
		MPI_Win_flush(0, win);
		MPI_Get(found, 2, MPI_INT, 0, 0, 2, MPI_INT, win);
		MPI_Win_unlock(0, win);
		CHECK_EQUAL(found[0], before + 1);
		CHECK_EQUAL(found[1], before + 1);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		CHECK_EQUAL(own(memory, 0), 3 * ROUNDS * size);
		CHECK_EQUAL(own(memory, 1), 3 * ROUNDS * size);
	}
}

/* Puts to the right neighbor, which reads them after a barrier without any call on the window. `busy` is the
 * time in which it makes no call of MPI. */
static void put_to_neighbor(MPI_Win win, int *memory, int type, int assert, useconds_t busy)
{
	clear(memory);
	for (int round = 1; round <= ROUNDS; round++) {
		int value = 1000 * round + rank, twice[2] = { value, value };

		if (rank % 2)
			usleep(busy);
		MPI_Win_lock(type, right(), assert, win);
		MPI_Put(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, win);
		MPI_Win_unlock(right(), win);
		MPI_Win_lock(type, right(), assert, win);
		MPI_Put(&twice[0], 1, MPI_INT, right(), 1, 1, MPI_INT, win);
		MPI_Put(&twice[1], 1, MPI_INT, right(), 2, 1, MPI_INT, win);
		MPI_Win_unlock(right(), win);
		MPI_Barrier(MPI_COMM_WORLD);
		for (int place = 0; place < 3; place++)
			CHECK_EQUAL(own(memory, place), 1000 * round + left());
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

static void everybody(MPI_Win win, int *memory)
{
	int one = 1;

	clear(memory);
	for (int round = 1; round <= ROUNDS; round++) {
		MPI_Win_lock_all(0, win);
		for (int target = 0; target < size; target++)
			MPI_Accumulate(&one, 1, MPI_INT, target, 3, 1, MPI_INT, MPI_SUM, win);
		MPI_Win_unlock_all(win);
		MPI_Barrier(MPI_COMM_WORLD);
		CHECK_EQUAL(own(memory, 3), round * size);
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

/* Long data, and short data around it. */
static void long_data(void)
{
	int *memory = calloc(LONG, sizeof *memory), *sent = malloc(LONG * sizeof *sent);
	MPI_Win win;

	MPI_Win_create(memory, LONG * sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	for (int length = 64; length <= LONG; length *= 4) {
		for (int i = 0; i < length; i++)
			sent[i] = rank + length + i;
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right(), 0, win);
		MPI_Put(sent, 1, MPI_INT, right(), 0, 1, MPI_INT, win);
		MPI_Put(sent + 1, length - 2, MPI_INT, right(), 1, length - 2, MPI_INT, win);
		MPI_Put(sent + length - 1, 1, MPI_INT, right(), length - 1, 1, MPI_INT, win);
		MPI_Win_unlock(right(), win);
		MPI_Barrier(MPI_COMM_WORLD);
		for (int i = 0; i < length; i++)
			CHECK_EQUAL(own(memory, i), left() + length + i);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_free(&win);
	free(memory);
	free(sent);
}

/*
 * The window is freed directly after the epochs. With unisono_local_completion, which other MPIs do not know,
 * an unlock does not wait for the target, so that epochs may wait there behind another rank's.
 */
static void freed_at_once(MPI_Info info)
{
	static int count; /* stock MPICH 4.0 loses accumulates to a window on a stack */
	int one = 1;
	MPI_Win win;

	count = 0;
	MPI_Win_create(&count, sizeof count, sizeof count, info, MPI_COMM_WORLD, &win);
	for (int round = 0; round < 3 * ROUNDS; round++) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win);
		if (round % 8 == 0) {
			MPI_Win_flush(0, win);
			usleep(500);
		}
		MPI_Win_unlock(0, win);
	}
	MPI_Win_free(&win);
	CHECK_EQUAL(count, rank == 0 ? 3 * ROUNDS * size : 0);
}

int main(int argc, char **argv)
{
	static int created[PLACES];
	int *allocated;
	MPI_Win windows[2];
	MPI_Info info;

	begin(&argc, &argv);
	MPI_Win_create(created, sizeof created, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &windows[0]);
	MPI_Win_allocate(sizeof created, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &allocated, &windows[1]);
	for (int i = 0; i < 2; i++) {
		int *memory = i ? allocated : created;

		contended(windows[i], memory);
		put_to_neighbor(windows[i], memory, MPI_LOCK_EXCLUSIVE, 0, 0);
		put_to_neighbor(windows[i], memory, MPI_LOCK_SHARED, 0, 300);
		put_to_neighbor(windows[i], memory, MPI_LOCK_SHARED, MPI_MODE_NOCHECK, 0);
		everybody(windows[i], memory);
		MPI_Win_free(&windows[i]);
	}
	long_data();
	freed_at_once(MPI_INFO_NULL);
	MPI_Info_create(&info);
	MPI_Info_set(info, "unisono_local_completion", "true");
	freed_at_once(info);
	MPI_Info_free(&info);
	return end("lock_epochs");
}
