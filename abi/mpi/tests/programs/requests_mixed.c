/*
 * Requests of windows beside requests of messages: waited for and tested together, one, some or all of them,
 * in windows of every flavor; also freed without a test.
 */
#include "check.h"

enum { N = 64, LONG = 100000 };
static MPI_Win win;
static MPI_Aint base; /* of the right neighbor's part: zero unless displacements are addresses */
static int unit;      /* bytes per displacement */

static MPI_Aint at(int element)
{
	return base + element * (MPI_Aint)(sizeof(int) / unit);
}

/* The ways to complete several requests: all four forms, with a message in each direction. */
enum how { ONE_BY_ONE, TESTED, WAITALL, TESTALL, WAITANY, TESTANY, WAITSOME, TESTSOME, STATUS, WAYS };

static void complete(enum how how, int count, MPI_Request *requests)
{
	MPI_Status status, statuses[8];
	int done = 0, which, many, indices[8];

	switch (how) {
	case ONE_BY_ONE:
		for (int i = count; i-- > 0;)
			MPI_Wait(&requests[i], &status);
		break;
	case TESTED:
		for (int i = 0; i < count; i++)
			for (done = 0; !done;)
				MPI_Test(&requests[i], &done, &status);
		break;
	case WAITALL:
		MPI_Waitall(count, requests, statuses);
		break;
	case TESTALL:
		while (!done)
			MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
		break;
	case WAITANY:
		for (int i = 0; i < count; i++) {
			MPI_Waitany(count, requests, &which, &status);
			CHECK(which >= 0 && which < count);
		}
		MPI_Waitany(count, requests, &which, &status);
		CHECK_EQUAL(which, MPI_UNDEFINED);
		break;
	case TESTANY:
		for (int i = 0; i < count;) {
			MPI_Testany(count, requests, &which, &done, &status);
			if (done && which != MPI_UNDEFINED)
				i++;
		}
		break;
	case WAITSOME:
		for (int i = 0; i < count; i += many)
			MPI_Waitsome(count, requests, &many, indices, statuses);
		break;
	case TESTSOME:
		for (int i = 0; i < count; i += many)
			MPI_Testsome(count, requests, &many, indices, statuses);
		break;
	default:
		for (int i = 0; i < count; i++) {
			for (done = 0; !done;)
				MPI_Request_get_status(requests[i], &done, &status);
			CHECK(requests[i] != MPI_REQUEST_NULL);
			MPI_Wait(&requests[i], &status);
		}
	}
	for (int i = 0; i < count; i++)
		CHECK(requests[i] == MPI_REQUEST_NULL);
}

/* The right neighbor's part: N put, N got, N added to, N fetched and added to. */
static void together(enum how how, int *mine)
{
	int put[N], got[N], added[N], fetched[N], message = 100 * rank + how, heard = -1, length = -1;
	MPI_Request requests[7];
	MPI_Status status;

	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	for (int i = 0; i < 4 * N; i++)
		mine[i] = 1000 * rank + i;
	MPI_Win_unlock(rank, win);
	for (int i = 0; i < N; i++) {
		put[i] = 7 * rank + i + how;
		added[i] = i;
		got[i] = fetched[i] = -1;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	MPI_Irecv(&heard, 1, MPI_INT, left(), how, MPI_COMM_WORLD, &requests[0]);
	MPI_Rput(put, N, MPI_INT, right(), at(0), N, MPI_INT, win, &requests[1]);
	MPI_Rget(got, N, MPI_INT, right(), at(N), N, MPI_INT, win, &requests[2]);
	MPI_Isend(&message, 1, MPI_INT, right(), how, MPI_COMM_WORLD, &requests[3]);
	MPI_Raccumulate(added, N, MPI_INT, right(), at(2 * N), N, MPI_INT, MPI_SUM, win, &requests[4]);
	MPI_Rget_accumulate(added, N, MPI_INT, fetched, N, MPI_INT, right(), at(3 * N), N, MPI_INT, MPI_SUM,
			    win, &requests[5]);
	MPI_Rget(got, N, MPI_INT, MPI_PROC_NULL, 0, N, MPI_INT, win, &requests[6]);
	complete(how, 7, requests);
	CHECK_EQUAL(heard, 100 * left() + how);
	for (int i = 0; i < N; i++) {
		CHECK_EQUAL(got[i], 1000 * right() + N + i);
		CHECK_EQUAL(fetched[i], 1000 * right() + 3 * N + i);
	}

	/* no call tests for completion: the end of the epoch completes it */
	for (int i = 0; i < N; i++)
		put[i] = -i;
	MPI_Rput(put, N / 2, MPI_INT, right(), at(0), N / 2, MPI_INT, win, &requests[0]);
	MPI_Wait(&requests[0], &status);
	MPI_Get_elements(&status, MPI_BYTE, &length);
	MPI_Test_cancelled(&status, &length);
	CHECK_EQUAL(length, 0);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);

	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	for (int i = 0; i < N; i++) {
		CHECK_EQUAL(mine[i], i < N / 2 ? -i : 7 * left() + i + (int)how);
		CHECK_EQUAL(mine[N + i], 1000 * rank + N + i);
		CHECK_EQUAL(mine[2 * N + i], 1000 * rank + 2 * N + i + i);
		CHECK_EQUAL(mine[3 * N + i], 1000 * rank + 3 * N + i + i);
	}
	MPI_Win_unlock(rank, win);
}

/* Long transfers, and layouts on both sides; many requests open at once. */
static void many(int *mine, int length)
{
	int *origin = malloc(length * sizeof(int)), *got = malloc(length * sizeof(int));
	MPI_Request requests[2 * N];
	MPI_Datatype every_other;

	MPI_Type_vector(length / 2, 1, 2, MPI_INT, &every_other);
	MPI_Type_commit(&every_other);
	for (int i = 0; i < length; i++) {
		origin[i] = i + rank;
		got[i] = -1;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right(), 0, win);
	MPI_Rput(origin, length, MPI_INT, right(), at(0), length, MPI_INT, win, &requests[0]);
	MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	MPI_Win_flush(right(), win);
	MPI_Rget(got, 1, every_other, right(), at(0), 1, every_other, win, &requests[0]);
	MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	for (int i = 0; i < length; i++)
		CHECK_EQUAL(got[i], i % 2 ? -1 : i + rank);
	for (int i = 0; i < N; i++) {
		MPI_Raccumulate(&origin[1], 1, MPI_INT, right(), at(i), 1, MPI_INT, MPI_REPLACE, win,
				&requests[2 * i]);
		MPI_Rget(&got[i], 1, MPI_INT, right(), at(N + i), 1, MPI_INT, win, &requests[2 * i + 1]);
	}
	MPI_Waitall(2 * N, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < N; i++)
		CHECK_EQUAL(got[i], N + i + rank);
	MPI_Win_unlock(right(), win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	for (int i = 0; i < length; i++)
		CHECK_EQUAL(mine[i], i < N ? 1 + left() : i + left());
	MPI_Win_unlock(rank, win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Type_free(&every_other);
	free(origin);
	free(got);
}

static void on(int *mine, int length)
{
	for (enum how how = ONE_BY_ONE; how < WAYS; how++)
		together(how, mine);
	many(mine, length);
}

int main(int argc, char **argv)
{
	int *mine;
	MPI_Aint address;

	begin(&argc, &argv);
	unit = sizeof(int);
	MPI_Win_allocate(LONG * sizeof(int), unit, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
	on(mine, LONG);
	MPI_Win_free(&win);

	mine = malloc(LONG * sizeof(int));
	MPI_Win_create(mine, LONG * sizeof(int), unit, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	on(mine, LONG);
	MPI_Win_free(&win);

	unit = 1;
	MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_attach(win, mine, LONG * sizeof(int));
	MPI_Get_address(mine, &address);
	MPI_Sendrecv(&address, 1, MPI_AINT, left(), 0, &base, 1, MPI_AINT, right(), 0, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	on(mine, LONG);
	MPI_Win_detach(win, mine);
	MPI_Win_free(&win);
	free(mine);
	return end("requests_mixed");
}
