/*
 * Three threads at once, each on a communicator that it makes from a group: messages, collectives and
 * barriers. MPI_Comm_create_from_group needs MPI 4; before, MPI_Comm_create_group is used.
 */
#include "check.h"
#include <pthread.h>

enum { THREADS = 3, ROUNDS = 25 };

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static void same(int line, long long found, long long expected)
{
	if (found == expected)
		return;
	pthread_mutex_lock(&counting);
	printf("rank %d: line %d: %lld, not %lld\n", rank, line, found, expected);
	failures++;
	pthread_mutex_unlock(&counting);
}
#define SAME(found, expected) same(__LINE__, found, expected)

static MPI_Comm made(int thread)
{
	MPI_Group world;
	MPI_Comm comm;

	MPI_Comm_group(MPI_COMM_WORLD, &world);
#if MPI_VERSION >= 4
	char tag[16];

	snprintf(tag, sizeof tag, "thread %d", thread);
	MPI_Comm_create_from_group(world, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
#else
	MPI_Comm_create_group(MPI_COMM_WORLD, world, thread, &comm);
#endif
	MPI_Group_free(&world);
	return comm;
}

static void *works(void *argument)
{
	int thread = (int)(long)argument, value, heard, all;
	MPI_Comm comm = made(thread);
	MPI_Request requests[2];
	double number, sum;

	for (int round = 0; round < ROUNDS; round++) {
		value = 1000 * thread + 10 * round + rank;
		MPI_Irecv(&heard, 1, MPI_INT, left(), round, comm, &requests[0]);
		MPI_Isend(&value, 1, MPI_INT, right(), round, comm, &requests[1]);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
		SAME(heard, 1000 * thread + 10 * round + left());
		MPI_Allreduce(&value, &all, 1, MPI_INT, MPI_MAX, comm);
		SAME(all, 1000 * thread + 10 * round + size - 1);
		number = value;
		MPI_Allreduce(&number, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
		SAME((long long)sum, (1000LL * thread + 10 * round) * size + size * (size - 1) / 2);
		heard = value;
		MPI_Bcast(&heard, 1, MPI_INT, round % size, comm);
		SAME(heard, 1000 * thread + 10 * round + round % size);
		MPI_Barrier(comm);
	}
	MPI_Comm_free(&comm);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	int provided;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (long thread = 0; thread < THREADS && provided == MPI_THREAD_MULTIPLE; thread++)
		pthread_create(&threads[thread], NULL, works, (void *)thread);
	for (long thread = 0; thread < THREADS && provided == MPI_THREAD_MULTIPLE; thread++)
		pthread_join(threads[thread], NULL);
	return end("from_group");
}
