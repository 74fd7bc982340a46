/*
 * Threads of a session of the level MPI_THREAD_MULTIPLE, without MPI_Init. Each makes a communicator from the
 * session's group and waits for messages and in collectives on it; all use one window at once. An MPI older
 * than MPI 4 has no sessions; there the program only says so.
 */
#include "check.h"
#include <pthread.h>

enum { THREADS = 3, ROUNDS = 50 };

#if MPI_VERSION >= 4
static MPI_Group group;
static MPI_Win win;
static int wrong[THREADS];

static void *works(void *argument)
{
	int thread = (int)(long)argument, value, heard, all, one = 1, old;
	MPI_Request requests[2];
	MPI_Comm comm;
	char tag[16];

	snprintf(tag, sizeof tag, "thread %d", thread);
	MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
	for (int round = 0; round < ROUNDS; round++) {
		value = 1000 * thread + 10 * round + rank;
		MPI_Irecv(&heard, 1, MPI_INT, left(), round, comm, &requests[0]);
		MPI_Isend(&value, 1, MPI_INT, right(), round, comm, &requests[1]);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
		wrong[thread] += heard != 1000 * thread + 10 * round + left();
		MPI_Allreduce(&value, &all, 1, MPI_INT, MPI_MAX, comm);
		wrong[thread] += all != 1000 * thread + 10 * round + size - 1;
		MPI_Fetch_and_op(&one, &old, MPI_INT, right(), 0, MPI_SUM, win);
		MPI_Win_flush(right(), win);
		wrong[thread] += old < 0 || old >= THREADS * ROUNDS;
		MPI_Barrier(comm);
	}
	MPI_Comm_free(&comm);
	return NULL;
}
#endif

int main(int argc, char **argv)
{
#if MPI_VERSION >= 4
	pthread_t threads[THREADS];
	MPI_Session session;
	MPI_Info info;
	MPI_Comm comm;
	char level[MPI_MAX_INFO_VAL + 1] = "";
	int *memory, all = 0, found = 0, bytes = sizeof level;

	MPI_Info_create(&info);
	MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE");
	MPI_Session_init(info, MPI_ERRORS_ARE_FATAL, &session);
	MPI_Info_free(&info);
	MPI_Session_get_info(session, &info);
	MPI_Info_get_string(info, "thread_level", &bytes, level, &found);
	MPI_Info_free(&info);
	CHECK(found && strcmp(level, "MPI_THREAD_MULTIPLE") == 0);
	MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
	MPI_Comm_create_from_group(group, "all", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	MPI_Win_allocate(16, sizeof(int), MPI_INFO_NULL, comm, &memory, &win);
	*memory = 0;
	MPI_Barrier(comm);
	MPI_Win_lock_all(0, win);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, works, (void *)i);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		CHECK_EQUAL(wrong[i], 0);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(comm);
	CHECK_EQUAL(*memory, THREADS * ROUNDS);
	MPI_Win_free(&win);
	MPI_Group_free(&group);
	MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, comm);
	if (rank == 0 && all == 0)
		printf("ok sessions_threads\n");
	MPI_Comm_free(&comm);
	MPI_Session_finalize(&session);
	return all != 0;
#else
	begin(&argc, &argv);
	if (rank == 0)
		printf("no sessions\n");
	return end("sessions_threads");
#endif
}
