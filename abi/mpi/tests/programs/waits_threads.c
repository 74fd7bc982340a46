/*
 * Threads of each rank that wait at the same time, each on a communicator of its own and all on a common one
 * with tags: no thread takes another's message, and no thread waits forever.
 */
#include "check.h"
#include <pthread.h>

enum { THREADS = 3, ROUNDS = 200 };
static MPI_Comm own[THREADS];
static int wrong[THREADS];

static void *exchange(void *argument)
{
	int which = (int)(long)argument, out, in;
	MPI_Request requests[2];
	MPI_Status status;

	for (int i = 0; i < ROUNDS; i++) {
		out = 1000 * which + i;
		in = -1;
		MPI_Irecv(&in, 1, MPI_INT, left(), i % 2, own[which], &requests[0]);
		MPI_Isend(&out, 1, MPI_INT, right(), i % 2, own[which], &requests[1]);
		if (i % 3)
			MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
		else
			for (int j = 0; j < 2; j++)
				MPI_Wait(&requests[j], MPI_STATUS_IGNORE);
		wrong[which] += in != out;
		in = -1;
		MPI_Sendrecv(&out, 1, MPI_INT, right(), which, &in, 1, MPI_INT, left(), which, MPI_COMM_WORLD,
			     &status);
		wrong[which] += in != out || status.MPI_TAG != which || status.MPI_SOURCE != left();
		if (rank % 2 == 0 && rank + 1 < size)
			MPI_Send(&out, 1, MPI_INT, rank + 1, 10 + which, MPI_COMM_WORLD);
		if (rank % 2 == 1) {
			MPI_Probe(rank - 1, 10 + which, MPI_COMM_WORLD, &status);
			MPI_Recv(&in, 1, MPI_INT, rank - 1, 10 + which, MPI_COMM_WORLD, &status);
			wrong[which] += in != out;
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	int provided;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (provided == MPI_THREAD_MULTIPLE) {
		for (int i = 0; i < THREADS; i++)
			MPI_Comm_dup(MPI_COMM_WORLD, &own[i]);
		for (long i = 0; i < THREADS; i++)
			pthread_create(&threads[i], NULL, exchange, (void *)i);
		for (int i = 0; i < THREADS; i++) {
			pthread_join(threads[i], NULL);
			CHECK_EQUAL(wrong[i], 0);
			MPI_Comm_free(&own[i]);
		}
	}
	return end("waits_threads");
}
