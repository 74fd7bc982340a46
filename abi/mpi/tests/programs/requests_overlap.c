/*
 * Operations with a request on dynamic windows go on while the origin computes: their calls return although
 * the target is stopped (SIGSTOP), and the operations complete after it goes on. A call that waited for the
 * target would never return, because the origin lets the target go on only after the call.
 */
#include "check.h"
#include <signal.h>
#include <unistd.h>

enum { SHORT = 8, LONG = 100000, KINDS = 4, WAYS = 8 };
enum how { WAIT, TEST, WAITALL, TESTALL, WAITANY, TESTANY, WAITSOME, STATUS };

static void complete(enum how how, MPI_Request *requests)
{
	MPI_Status status, statuses[KINDS];
	int done = 0, which, indices[KINDS];

	if (how == WAITALL)
		MPI_Waitall(KINDS, requests, statuses);
	while (how == TESTALL && !done)
		MPI_Testall(KINDS, requests, &done, statuses);
	for (int i = 0; i < KINDS; i += done) {
		done = 1;
		if (how == WAIT)
			MPI_Wait(&requests[i], &status);
		else if (how == TEST)
			MPI_Test(&requests[i], &done, &status);
		else if (how == WAITANY)
			MPI_Waitany(KINDS, requests, &which, &status);
		else if (how == TESTANY)
			MPI_Testany(KINDS, requests, &which, &done, &status);
		else if (how == WAITSOME)
			MPI_Waitsome(KINDS, requests, &done, indices, statuses);
		else if (how == STATUS) {
			MPI_Request_get_status(requests[i], &done, &status);
			if (done)
				MPI_Wait(&requests[i], &status);
		}
	}
	for (int i = 0; i < KINDS; i++)
		CHECK(requests[i] == MPI_REQUEST_NULL);
}

/* Rank 0 accesses rank 1's memory: n put, n got, n added to, n fetched and added to. */
static void origin(MPI_Win win, MPI_Aint base, pid_t target, int n, enum how how)
{
	int *put = malloc(4 * n * sizeof(int)), *got = put + n, *added = got + n, *fetched = added + n;
	MPI_Request requests[KINDS];
	double computed = 0;

	for (int i = 0; i < n; i++) {
		put[i] = 5 * i + how;
		added[i] = i;
		got[i] = fetched[i] = -1;
	}
	MPI_Win_lock_all(0, win);
	for (int again = 0; again < 2; again++) {
		kill(target, SIGSTOP);
		MPI_Rget(got, n, MPI_INT, 1, base + n * sizeof(int), n, MPI_INT, win, &requests[0]);
		MPI_Rput(put, n, MPI_INT, 1, base, n, MPI_INT, win, &requests[1]);
		MPI_Raccumulate(added, n, MPI_INT, 1, base + 2 * n * sizeof(int), n, MPI_INT, MPI_SUM, win,
				&requests[2]);
		MPI_Rget_accumulate(added, n, MPI_INT, fetched, n, MPI_INT, 1, base + 3 * n * sizeof(int), n,
				    MPI_INT, MPI_SUM, win, &requests[3]);
		for (int i = 0; i < 1000; i++)
			computed += 1.0 / (1 + i);
		kill(target, SIGCONT);
		complete(how, requests);
		CHECK(computed > 1);
		for (int i = 0; i < n; i++) {
			CHECK_EQUAL(got[i], 1000 + n + i);
			CHECK_EQUAL(fetched[i], 1000 + 3 * n + i + again * i);
		}
	}
	/* the end of the epoch completes a request that the program has freed, and one that it ends later */
	put[0] = 7;
	put[1] = 8;
	MPI_Rput(put, 1, MPI_INT, 1, base, 1, MPI_INT, win, &requests[0]);
	MPI_Rget(got, n, MPI_INT, 1, base + n * sizeof(int), n, MPI_INT, win, &requests[1]);
	MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	MPI_Win_unlock_all(win);
	complete(how == WAIT ? TEST : WAIT,
		 (MPI_Request[KINDS]){ MPI_REQUEST_NULL, requests[1], MPI_REQUEST_NULL, MPI_REQUEST_NULL });
	CHECK_EQUAL(got[n - 1], 1000 + n + n - 1);
	free(put);
}

int main(int argc, char **argv)
{
	int *mine = malloc(4 * LONG * sizeof(int));
	MPI_Aint address, base;
	MPI_Win win;
	int own, target;

	begin(&argc, &argv);
	own = (int)getpid();
	MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_attach(win, mine, 4 * LONG * sizeof(int));
	MPI_Get_address(mine, &address);
	MPI_Sendrecv(&address, 1, MPI_AINT, left(), 0, &base, 1, MPI_AINT, right(), 0, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	MPI_Sendrecv(&own, 1, MPI_INT, left(), 1, &target, 1, MPI_INT, right(), 1, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	for (int how = 0; how < WAYS; how++)
		for (int n = SHORT; n <= LONG; n += LONG - SHORT) {
			for (int i = 0; i < 4 * n; i++)
				mine[i] = 1000 + i;
			MPI_Barrier(MPI_COMM_WORLD);
			if (rank == 0 && size > 1)
				origin(win, base, (pid_t)target, n, how);
			MPI_Barrier(MPI_COMM_WORLD);
			for (int i = 0; i < n && rank == 1; i++) {
				CHECK_EQUAL(mine[i], i == 0 ? 7 : 5 * i + how);
				CHECK_EQUAL(mine[2 * n + i], 1000 + 2 * n + i + 2 * i);
				CHECK_EQUAL(mine[3 * n + i], 1000 + 3 * n + i + 2 * i);
			}
		}
	MPI_Win_detach(win, mine);
	MPI_Win_free(&win);
	free(mine);
	return end("requests_overlap");
}
