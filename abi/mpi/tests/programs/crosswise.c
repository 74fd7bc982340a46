/*
 * Locks on several targets in opposite orders: one after another; several held at once, where each pair of
 * ranks shares a kind of lock that both may hold; and lock-all that accesses targets in a different order on
 * each rank, all beside exclusive locks of other ranks. A rank that waits for an exclusive lock must not keep
 * out ranks that already hold a lock: they would wait for each other in a circle.
 */
#include "check.h"

enum { ROUNDS = 40 };
static int *memory;
static MPI_Win win;

static void clear(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	memory[0] = memory[1] = 0;
	MPI_Win_unlock(rank, win);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void holds(int place, int expected)
{
	int found = -1;

	MPI_Barrier(MPI_COMM_WORLD);
	for (int target = 0; target < size; target++) {
		MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
		MPI_Get(&found, 1, MPI_INT, target, place, 1, MPI_INT, win);
		MPI_Win_unlock(target, win);
		CHECK_EQUAL(found, expected);
	}
}

/* Adds under a shared lock, by an atomic operation. */
static void add(int target, int place)
{
	int one = 1, before = -1;

	MPI_Fetch_and_op(&one, &before, MPI_INT, target, place, MPI_SUM, win);
	MPI_Win_flush(target, win);
	CHECK(before >= 0);
}

/* Adds under an exclusive lock, by a read and a write: only exclusion keeps the count right. */
static void read_and_write(int target, int place)
{
	int value = -1;

	MPI_Get(&value, 1, MPI_INT, target, place, 1, MPI_INT, win);
	MPI_Win_flush(target, win);
	value++;
	MPI_Put(&value, 1, MPI_INT, target, place, 1, MPI_INT, win);
	MPI_Win_flush(target, win);
}

/* Returns the `i`th target of this rank: even ranks count up, odd ranks count down. */
static int nth(int i)
{
	return rank % 2 ? (rank + size - i) % size : (rank + i) % size;
}

static void one_by_one(void)
{
	clear();
	for (int round = 0; round < ROUNDS; round++)
		for (int i = 1; i <= size; i++) {
			int target = nth(i), exclusive = (round + target + rank) % 2;

			MPI_Win_lock(exclusive ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, win);
			if (exclusive)
				read_and_write(target, 0);
			else
				add(target, 0);
			MPI_Win_unlock(target, win);
		}
	holds(0, ROUNDS * size);
}

/*
 * Rank 0 locks target 1, then 0; rank 1 locks 0, then 1; each holds both. `kind_of_1` is the kind of lock on
 * target 1; target 0 is locked shared. Every other rank locks one of the two targets exclusively.
 */
static void held_crosswise(int kind_of_1)
{
	clear();
	for (int round = 0; round < ROUNDS && size > 1; round++) {
		if (rank < 2) {
			int first = 1 - rank, second = rank;

			for (int i = 0; i < 2; i++) {
				int target = i ? second : first;

				MPI_Win_lock(target == 1 ? kind_of_1 : MPI_LOCK_SHARED, target, 0, win);
				if (target == 1 && kind_of_1 == MPI_LOCK_EXCLUSIVE)
					read_and_write(1, 0);
				else
					add(target, 0);
			}
			MPI_Win_unlock(round % 2 ? first : second, win);
			MPI_Win_unlock(round % 2 ? second : first, win);
		} else {
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, (rank + round) % 2, 0, win);
			read_and_write((rank + round) % 2, 1);
			MPI_Win_unlock((rank + round) % 2, win);
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int target = 0; target < 2 && size > 1; target++) {
		int found[2] = { -1, -1 }, others = 0;

		for (int other = 2; other < size; other++)
			for (int round = 0; round < ROUNDS; round++)
				others += (other + round) % 2 == target;
		MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
		MPI_Get(found, 2, MPI_INT, target, 0, 2, MPI_INT, win);
		MPI_Win_unlock(target, win);
		CHECK_EQUAL(found[0], 2 * ROUNDS);
		CHECK_EQUAL(found[1], others);
	}
}

/* Ranks with lock-all and ranks with exclusive locks, in turns. */
static void all_beside_exclusive(void)
{
	int expected = 0;

	clear();
	for (int round = 0; round < ROUNDS; round++) {
		if ((rank / 2 + round) % 2) {
			MPI_Win_lock_all(0, win);
			for (int i = 1; i <= size; i++)
				add(nth(i), 0);
			MPI_Win_unlock_all(win);
		} else {
			for (int i = 1; i <= size; i++) {
				MPI_Win_lock(MPI_LOCK_EXCLUSIVE, nth(i), 0, win);
				read_and_write(nth(i), 0);
				MPI_Win_unlock(nth(i), win);
			}
		}
	}
	expected = ROUNDS * size;
	holds(0, expected);
}

/* Several exclusive locks at once, in an order that all ranks agree on. */
static void in_order(void)
{
	clear();
	for (int round = 0; round < ROUNDS; round++) {
		int low = left() < rank ? left() : rank, high = left() < rank ? rank : left();

		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, low, 0, win);
		read_and_write(low, 0);
		if (high != low) {
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, high, 0, win);
			read_and_write(high, 0);
			MPI_Win_unlock(high, win);
		}
		MPI_Win_unlock(low, win);
	}
	holds(0, (size > 1 ? 2 : 1) * ROUNDS);
}

static void every_way(void)
{
	one_by_one();
	held_crosswise(MPI_LOCK_SHARED);
	held_crosswise(MPI_LOCK_EXCLUSIVE);
	all_beside_exclusive();
	in_order();
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	every_way();
	MPI_Win_free(&win);
	memory = calloc(4, sizeof(int));
	MPI_Win_create(memory, 4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	every_way();
	MPI_Win_free(&win);
	free(memory);
	return end("crosswise");
}
