/*
 * Calls that wait for messages: received data, statuses, requests of every kind, cancellation, errors that
 * return, MPI_ANY_SOURCE, and calls without requests.
 */
#include "check.h"

enum { LONG = 200000, ROUNDS = 50 };

static void check_status(const MPI_Status *status, int source, int tag, int elements)
{
	int count = -1, cancelled = -1;

	CHECK_EQUAL(status->MPI_SOURCE, source);
	CHECK_EQUAL(status->MPI_TAG, tag);
	MPI_Get_count(status, MPI_INT, &count);
	CHECK_EQUAL(count, elements);
	MPI_Test_cancelled(status, &cancelled);
	CHECK_EQUAL(cancelled, 0);
}

static void check_empty(const MPI_Status *status)
{
	int count = -1;

	CHECK_EQUAL(status->MPI_SOURCE, MPI_ANY_SOURCE);
	CHECK_EQUAL(status->MPI_TAG, MPI_ANY_TAG);
	MPI_Get_count(status, MPI_INT, &count);
	CHECK_EQUAL(count, 0);
}

static void fill(int *data, int length, int seed)
{
	for (int i = 0; i < length; i++)
		data[i] = seed + i;
}

static void check_filled(const int *data, int length, int seed)
{
	int wrong = 0;

	for (int i = 0; i < length; i++)
		wrong += data[i] != seed + i;
	CHECK_EQUAL(wrong, 0);
}

/* A ring of every kind of send, short and long, completed in every way. */
static void ring(int length)
{
	int *out = malloc(sizeof(int) * length), *in = malloc(sizeof(int) * length);
	int number, index, indices[2];
	MPI_Request requests[2];
	MPI_Status status, statuses[2];

	for (int round = 0; round < (length > 1000 ? 4 : ROUNDS); round++) {
		fill(out, length, 1000 * rank + round);
		MPI_Irecv(in, length, MPI_INT, left(), 1, MPI_COMM_WORLD, &requests[0]);
		if (round % 3 == 0)
			MPI_Isend(out, length, MPI_INT, right(), 1, MPI_COMM_WORLD, &requests[1]);
		else if (round % 3 == 1)
			MPI_Issend(out, length, MPI_INT, right(), 1, MPI_COMM_WORLD, &requests[1]);
		else
			MPI_Isend(out, length, MPI_INT, right(), 1, MPI_COMM_WORLD, &requests[1]);
		switch (round % 4) {
		case 0:
			MPI_Waitall(2, requests, statuses);
			check_status(&statuses[0], left(), 1, length);
			break;
		case 1:
			MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
			MPI_Wait(&requests[0], &status);
			check_status(&status, left(), 1, length);
			break;
		case 2:
			for (int i = 0; i < 2; i++) {
				MPI_Waitany(2, requests, &index, &status);
				CHECK(index == 0 || index == 1);
				if (index == 0)
					check_status(&status, left(), 1, length);
			}
			MPI_Waitany(2, requests, &index, &status);
			CHECK_EQUAL(index, MPI_UNDEFINED);
			check_empty(&status);
			break;
		default:
			for (int done = 0; done < 2; done += number) {
				MPI_Waitsome(2, requests, &number, indices, statuses);
				CHECK(number == 1 || number == 2);
				for (int i = 0; i < number; i++)
					if (indices[i] == 0)
						check_status(&statuses[i], left(), 1, length);
			}
			MPI_Waitsome(2, requests, &number, indices, statuses);
			CHECK_EQUAL(number, MPI_UNDEFINED);
		}
		CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
		check_filled(in, length, 1000 * left() + round);

		/* calls that wait for both ends at once */
		memset(in, 0, sizeof(int) * length);
		MPI_Sendrecv(out, length, MPI_INT, right(), 2, in, length, MPI_INT, left(), 2, MPI_COMM_WORLD,
			     &status);
		check_status(&status, left(), 2, length);
		check_filled(in, length, 1000 * left() + round);
		MPI_Sendrecv_replace(in, length, MPI_INT, right(), 3, left(), 3, MPI_COMM_WORLD, &status);
		check_status(&status, left(), 3, length);
		check_filled(in, length, 1000 * ((rank + 2 * size - 2) % size) + round);

		/* calls that wait for one end */
		for (int sender = 0; sender < size; sender++) {
			if (rank == sender && size > 1) {
				fill(out, length, sender);
				if (round % 2)
					MPI_Send(out, length, MPI_INT, right(), 4, MPI_COMM_WORLD);
				else
					MPI_Ssend(out, length, MPI_INT, right(), 4, MPI_COMM_WORLD);
			}
			if (left() == sender && size > 1) {
				MPI_Message message;

				memset(in, 0, sizeof(int) * length);
				if (round % 3 == 0) {
					MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
					check_status(&status, sender, 4, length);
				}
				if (round % 3 == 1) {
					MPI_Mprobe(sender, 4, MPI_COMM_WORLD, &message, &status);
					check_status(&status, sender, 4, length);
					MPI_Mrecv(in, length, MPI_INT, &message, &status);
					CHECK(message == MPI_MESSAGE_NULL);
				} else {
					MPI_Recv(in, length, MPI_INT, MPI_ANY_SOURCE, 4, MPI_COMM_WORLD,
						 &status);
				}
				check_status(&status, sender, 4, length);
				check_filled(in, length, sender);
			}
		}
	}
	free(out);
	free(in);
}

/* Every rank sends to rank 0, which receives in order of arrival, on a communicator with other ranks. */
static void any_source(void)
{
	MPI_Comm reversed;
	int own, value, seen = 0, from[64] = { 0 };
	MPI_Status status;

	MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
	MPI_Comm_rank(reversed, &own);
	if (own == 0) {
		for (int i = 0; i < ROUNDS * (size - 1); i++) {
			MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, reversed, &status);
			CHECK_EQUAL(value, 100 * status.MPI_SOURCE + status.MPI_TAG);
			CHECK_EQUAL(status.MPI_TAG, from[status.MPI_SOURCE % 64]++);
			seen++;
		}
		CHECK_EQUAL(seen, ROUNDS * (size - 1));
	} else {
		for (int i = 0; i < ROUNDS; i++) {
			value = 100 * own + i;
			MPI_Send(&value, 1, MPI_INT, 0, i, reversed);
		}
	}
	MPI_Comm_free(&reversed);
}

static void persistent(void)
{
	int out, in = -1, flag;
	MPI_Request requests[2];
	MPI_Status status, statuses[2];

	MPI_Recv_init(&in, 1, MPI_INT, left(), 5, MPI_COMM_WORLD, &requests[0]);
	MPI_Send_init(&out, 1, MPI_INT, right(), 5, MPI_COMM_WORLD, &requests[1]);
	/* inactive requests count as complete, and remain */
	MPI_Wait(&requests[0], &status);
	check_empty(&status);
	CHECK(requests[0] != MPI_REQUEST_NULL);
	for (int i = 0; i < ROUNDS; i++) {
		out = 1000 * rank + i;
		if (i % 2) {
			MPI_Startall(2, requests);
		} else {
			MPI_Start(&requests[0]);
			MPI_Start(&requests[1]);
		}
		if (i % 3) {
			MPI_Waitall(2, requests, statuses);
			check_status(&statuses[0], left(), 5, 1);
		} else {
			MPI_Wait(&requests[0], &status);
			check_status(&status, left(), 5, 1);
			MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
		}
		CHECK_EQUAL(in, 1000 * left() + i);
	}
	MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
	CHECK_EQUAL(flag, 1);
	MPI_Request_free(&requests[0]);
	MPI_Request_free(&requests[1]);
}

static int asked;
static int query(void *extra, MPI_Status *status)
{
	(void)extra;
	asked++;
	MPI_Status_set_elements(status, MPI_INT, 3);
	MPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = 7;
	status->MPI_TAG = 9;
	return MPI_SUCCESS;
}
static int freed(void *extra)
{
	(void)extra;
	return MPI_SUCCESS;
}
static int cancel(void *extra, int complete)
{
	(void)extra;
	(void)complete;
	return MPI_SUCCESS;
}

static void cancelled_and_generalized(void)
{
	int in, flag = -1;
	MPI_Request request;
	MPI_Status status;

	MPI_Irecv(&in, 1, MPI_INT, left(), 77, MPI_COMM_WORLD, &request);
	MPI_Cancel(&request);
	MPI_Wait(&request, &status);
	MPI_Test_cancelled(&status, &flag);
	CHECK_EQUAL(flag, 1);
	CHECK(request == MPI_REQUEST_NULL);

	MPI_Grequest_start(query, freed, cancel, NULL, &request);
	MPI_Grequest_complete(request);
	MPI_Wait(&request, &status);
	CHECK_EQUAL(asked, 1);
	check_status(&status, 7, 9, 3);
}

/* MPI_PROC_NULL, empty lists, and null requests. */
static void nothing(void)
{
	int value = 5, index = -1, number = -1;
	MPI_Request none = MPI_REQUEST_NULL;
	MPI_Status status;

	MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status);
	CHECK_EQUAL(status.MPI_SOURCE, MPI_PROC_NULL);
	CHECK_EQUAL(status.MPI_TAG, MPI_ANY_TAG);
	MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD);
	MPI_Probe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status);
	CHECK_EQUAL(status.MPI_SOURCE, MPI_PROC_NULL);
	MPI_Sendrecv(&value, 1, MPI_INT, MPI_PROC_NULL, 0, &value, 1, MPI_INT, MPI_PROC_NULL, 0,
		     MPI_COMM_WORLD, &status);
	CHECK_EQUAL(status.MPI_SOURCE, MPI_PROC_NULL);
	CHECK_EQUAL(value, 5);
	MPI_Wait(&none, &status);
	check_empty(&status);
	MPI_Waitall(0, &none, MPI_STATUSES_IGNORE);
	MPI_Waitall(1, &none, &status);
	check_empty(&status);
	MPI_Waitany(0, &none, &index, &status);
	CHECK_EQUAL(index, MPI_UNDEFINED);
	MPI_Waitsome(0, &none, &number, &index, MPI_STATUSES_IGNORE);
	CHECK_EQUAL(number, MPI_UNDEFINED);
}

static int handled;
static MPI_Comm handled_comm;
static void handler(MPI_Comm *comm, int *code, ...)
{
	CHECK_CLASS(*code, MPI_ERR_TRUNCATE);
	CHECK(*comm == handled_comm);
	handled++;
}

/* Errors go to the communicator's handler. If they are returned, they have the host's classes. */
static void errors(void)
{
	int two[2] = { 1, 2 }, one, class;
	MPI_Comm comm;
	MPI_Request requests[2];
	MPI_Status status, statuses[2];
	MPI_Errhandler own;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	CHECK_CLASS(MPI_Recv(&one, 1, MPI_INT, size + 3, 0, comm, &status), MPI_ERR_RANK);
	CHECK_CLASS(MPI_Send(&one, 1, MPI_INT, size + 3, 0, comm), MPI_ERR_RANK);
	CHECK_CLASS(MPI_Send(&one, 1, MPI_INT, right(), -5, comm), MPI_ERR_TAG);
	CHECK_CLASS(MPI_Recv(&one, -1, MPI_INT, left(), 0, comm, &status), MPI_ERR_COUNT);
	CHECK_CLASS(MPI_Recv(&one, 1, MPI_DATATYPE_NULL, left(), 0, comm, &status), MPI_ERR_TYPE);
	CHECK_CLASS(MPI_Probe(size + 3, 0, comm, &status), MPI_ERR_RANK);
	CHECK_CLASS(MPI_Sendrecv(&one, 1, MPI_INT, size + 3, 0, two, 1, MPI_INT, left(), 0, comm, &status),
		    MPI_ERR_RANK);
	MPI_Barrier(comm);
	/* longer than the receive buffer */
	MPI_Isend(two, 2, MPI_INT, right(), 6, comm, &requests[0]);
	CHECK_CLASS(MPI_Recv(&one, 1, MPI_INT, left(), 6, comm, &status), MPI_ERR_TRUNCATE);
	MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	/* several requests may belong to several communicators: the world's handler is called */
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Irecv(&one, 1, MPI_INT, left(), 7, comm, &requests[0]);
	MPI_Isend(two, 2, MPI_INT, right(), 7, comm, &requests[1]);
	class = class_of(MPI_Waitall(2, requests, statuses));
	CHECK_EQUAL(class, MPI_ERR_IN_STATUS);
	CHECK_EQUAL(class_of(statuses[0].MPI_ERROR), MPI_ERR_TRUNCATE);
	class = class_of(statuses[1].MPI_ERROR);
	CHECK(class == MPI_SUCCESS || class == MPI_ERR_PENDING);
	MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	/* by the communicator's handler, not the world's */
	MPI_Comm_create_errhandler(handler, &own);
	MPI_Comm_set_errhandler(comm, own);
	handled_comm = comm;
	MPI_Isend(two, 2, MPI_INT, right(), 8, comm, &requests[0]);
	CHECK_CLASS(MPI_Recv(&one, 1, MPI_INT, left(), 8, comm, &status), MPI_ERR_TRUNCATE);
	CHECK_EQUAL(handled, 1);
	MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	CHECK_CLASS(MPI_Sendrecv(two, 2, MPI_INT, right(), 9, &one, 1, MPI_INT, left(), 9, comm, &status),
		    MPI_ERR_TRUNCATE);
	CHECK_EQUAL(handled, 2);
	MPI_Errhandler_free(&own);
	MPI_Comm_free(&comm);
}

/* Two halves of the job, each of which is the other's remote group. */
static void between_groups(void)
{
	MPI_Comm half, between;
	int value = rank, heard = -1, remote, own;

	if (size < 2)
		return;
	MPI_Comm_split(MPI_COMM_WORLD, rank < size / 2, rank, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank < size / 2 ? size / 2 : 0, 11, &between);
	MPI_Comm_remote_size(between, &remote);
	MPI_Comm_rank(between, &own);
	for (int i = 0; i < ROUNDS && own == 0; i++) {
		MPI_Sendrecv(&value, 1, MPI_INT, 0, i, &heard, 1, MPI_INT, 0, i, between, MPI_STATUS_IGNORE);
		CHECK_EQUAL(heard, rank < size / 2 ? size / 2 : 0);
	}
	CHECK(remote > 0);
	MPI_Comm_free(&between);
	MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	ring(1);
	ring(LONG);
	any_source();
	persistent();
	cancelled_and_generalized();
	nothing();
	if (size > 1) /* Open MPI does not detect a message from itself that is too long */
		errors();
	between_groups();
	return end("waits");
}
