/*
 * Several threads in MPI at once: with windows and barriers of their own, exposing and accessing a window in
 * different threads, sharing a passive epoch, and with locks that two threads each take on their own target.
 */
#include "check.h"
#include <pthread.h>

enum { THREADS = 3, ROUNDS = 30 };
static MPI_Comm comms[THREADS];
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static void wrong(int line)
{
	pthread_mutex_lock(&counting);
	printf("rank %d: line %d\n", rank, line);
	failures++;
	pthread_mutex_unlock(&counting);
}
#define SAME(found, expected)                                                                                \
	do {                                                                                                 \
		if ((found) != (expected))                                                                   \
			wrong(__LINE__);                                                                     \
	} while (0)

/* windows and barriers on a communicator of the thread's own */
static void *alone(void *which)
{
	MPI_Comm comm = comms[(long)which];
	int *memory, value, got;
	MPI_Win win;

	for (int round = 0; round < ROUNDS; round++) {
		if (round % 10 == 0)
			MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, comm, &memory, &win);
		MPI_Win_fence(0, win);
		value = 1000 * round + rank;
		MPI_Put(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, win);
		MPI_Win_fence(0, win);
		SAME(memory[0], 1000 * round + left());
		MPI_Barrier(comm);
		MPI_Allreduce(&value, &got, 1, MPI_INT, MPI_SUM, comm);
		if (round % 10 == 9)
			MPI_Win_free(&win);
	}
	return NULL;
}

static MPI_Win together;
static int *slots;

/* each rank exposes ... */
static void *exposes(void *unused)
{
	MPI_Group group, one;
	int who = left();

	(void)unused;
	MPI_Comm_group(MPI_COMM_WORLD, &group);
	MPI_Group_incl(group, 1, &who, &one);
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Win_post(one, 0, together);
		MPI_Win_wait(together);
		SAME(slots[0], 1000 * round + who);
	}
	MPI_Group_free(&one);
	MPI_Group_free(&group);
	return NULL;
}

/* ... while another of its threads accesses the next rank */
static void *accesses(void *unused)
{
	MPI_Group group, one;
	int who = right(), value;

	(void)unused;
	MPI_Comm_group(MPI_COMM_WORLD, &group);
	MPI_Group_incl(group, 1, &who, &one);
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Win_start(one, 0, together);
		value = 1000 * round + rank;
		MPI_Put(&value, 1, MPI_INT, who, 0, 1, MPI_INT, together);
		MPI_Win_complete(together);
	}
	MPI_Group_free(&one);
	MPI_Group_free(&group);
	return NULL;
}

/* one passive epoch, several threads operate and flush in it */
static void *adds(void *unused)
{
	int one = 1, before;

	(void)unused;
	for (int round = 0; round < ROUNDS; round++)
		for (int to = 0; to < size; to++) {
			MPI_Fetch_and_op(&one, &before, MPI_INT, to, 1, MPI_SUM, together);
			MPI_Win_flush(to, together);
			if (before < 0)
				wrong(__LINE__);
		}
	return NULL;
}

/* each thread locks its own target exclusively: waiting for a lock does not keep the other thread from
 * releasing its own */
static void *locks(void *which)
{
	int target = (rank + (int)(long)which) % size, one = 1, before;

	for (int round = 0; round < ROUNDS; round++) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, together);
		MPI_Get(&before, 1, MPI_INT, target, 1, 1, MPI_INT, together);
		MPI_Win_flush(target, together);
		before += one;
		MPI_Put(&before, 1, MPI_INT, target, 1, 1, MPI_INT, together);
		MPI_Win_unlock(target, together);
	}
	return NULL;
}

static void run(int threads, void *(*work[])(void *))
{
	pthread_t started[THREADS];

	for (long i = 0; i < threads; i++)
		pthread_create(&started[i], NULL, work[i], (void *)i);
	for (int i = 0; i < threads; i++)
		pthread_join(started[i], NULL);
}

int main(int argc, char **argv)
{
	int provided;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (provided < MPI_THREAD_MULTIPLE)
		return end("threads");
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	run(THREADS, (void *(*[])(void *)){ alone, alone, alone });
	MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &slots, &together);
	slots[0] = slots[1] = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	run(2, (void *(*[])(void *)){ exposes, accesses });
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, together);
	run(THREADS, (void *(*[])(void *)){ adds, adds, adds });
	MPI_Win_unlock_all(together);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, together);
	SAME(slots[1], THREADS * ROUNDS * size);
	MPI_Win_unlock(rank, together);
	MPI_Barrier(MPI_COMM_WORLD);
	int lockers = size < 2 ? 1 : 2;
	run(lockers, (void *(*[])(void *)){ locks, locks });
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, together);
	SAME(slots[1], (THREADS * size + lockers) * ROUNDS);
	MPI_Win_unlock(rank, together);
	MPI_Win_free(&together);
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_free(&comms[i]);
	return end("threads");
}
