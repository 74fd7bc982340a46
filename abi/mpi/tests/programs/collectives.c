/*
 * Small collectives return the same bits as on the MPI alone: with an argument, each rank prints a sum over
 * all results, so that two runs can be compared. Integer results are also compared with known values.
 */
#include "check.h"
#include <stdint.h>

enum { MAX_COUNT = 160, ROUNDS = 12 };

static uint64_t sum = 14695981039346656037u;

static void note(const void *data, size_t bytes)
{
	const unsigned char *at = data;

	for (size_t i = 0; i < bytes; i++)
		sum = (sum ^ at[i]) * 1099511628211u;
}

/* Numbers of very different magnitude, so that the order of additions matters. */
static double number(int who, int place, int round)
{
	uint64_t state = (uint64_t)who * 1000003 + (uint64_t)place * 10007 + (uint64_t)round;

	state = (state ^ 0x5bf03635) * 0x9e3779b97f4a7c15u;
	state ^= state >> 29;
	return ((double)(state % 2000003) - 1000001) * (double)(1u << (state >> 40) % 31);
}

static void floating(MPI_Comm comm, int own, int count, int round)
{
	MPI_Op ops[] = { MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX };
	double in[MAX_COUNT], out[MAX_COUNT];
	float narrow_in[MAX_COUNT], narrow_out[MAX_COUNT];

	for (int op = 0; op < 4; op++) {
		for (int i = 0; i < count; i++) {
			in[i] = number(own, i, round);
			narrow_in[i] = (float)in[i];
		}
		MPI_Allreduce(in, out, count, MPI_DOUBLE, ops[op], comm);
		note(out, count * sizeof *out);
		MPI_Allreduce(narrow_in, narrow_out, count, MPI_FLOAT, ops[op], comm);
		note(narrow_out, count * sizeof *narrow_out);
		MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_DOUBLE, ops[op], comm);
		CHECK(memcmp(in, out, count * sizeof *in) == 0);
	}
}

static void whole(MPI_Comm comm, int own, int members, int count, int round)
{
	int in[MAX_COUNT], out[MAX_COUNT], all = 0;
	unsigned short bits_in[MAX_COUNT], bits_out[MAX_COUNT];
	struct {
		double value;
		int place;
	} place = { number(own, 0, round), own }, least;

	for (int i = 0; i < count; i++) {
		in[i] = own * (i + 1) + round;
		bits_in[i] = 1 << (own % 16);
		out[i] = -1;
	}
	for (int who = 0; who < members; who++)
		all += who;
	MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm);
	for (int i = 0; i < count; i++)
		CHECK_EQUAL(out[i], all * (i + 1) + members * round);
	MPI_Allreduce(in, out, count, MPI_INT, MPI_MAX, comm);
	CHECK_EQUAL(out[0], members - 1 + round);
	MPI_Allreduce(bits_in, bits_out, count, MPI_UNSIGNED_SHORT, MPI_BOR, comm);
	CHECK_EQUAL(bits_out[0], members >= 16 ? 0xffff : (1 << members) - 1);
	MPI_Allreduce(&place, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm);
	note(&least.value, sizeof least.value);
}

static void concatenated(void *in, void *inout, int *count, MPI_Datatype *type)
{
	int *from = in, *to = inout;

	(void)type;
	for (int i = 0; i < *count; i++)
		to[i] = from[i] * 10 + to[i];
}

static void every(MPI_Comm comm)
{
	int own, members, data[MAX_COUNT], error;
	MPI_Request request;
	MPI_Op order;
	MPI_Datatype pair;

	MPI_Comm_rank(comm, &own);
	MPI_Comm_size(comm, &members);
	MPI_Op_create(concatenated, 0, &order);
	MPI_Type_vector(2, 1, 3, MPI_INT, &pair);
	MPI_Type_commit(&pair);
	for (int round = 0; round < ROUNDS; round++) {
		int root = round % members, count = round % 3 ? 1 : 1 + round * 17 % MAX_COUNT,
		    digits = own + 1;

		whole(comm, own, members, count, round);
		floating(comm, own, round % 2 ? 1 : 5, round);
		for (int i = 0; i < MAX_COUNT; i++)
			data[i] = own == root ? round + i : -1;
		MPI_Bcast(data, count, MPI_INT, root, comm);
		for (int i = 0; i < MAX_COUNT; i++)
			CHECK_EQUAL(data[i], own == root || i < count ? round + i : -1);
		/* with gaps, and of different types at both ends */
		for (int i = 0; i < 6; i++)
			data[i] = own == root ? 7 * round + i : -1;
		if (own == root)
			MPI_Bcast(data, 1, pair, root, comm);
		else
			MPI_Bcast(data, 2, MPI_INT, root, comm);
		CHECK_EQUAL(data[own == root ? 3 : 1], 7 * round + 3);
		MPI_Allreduce(MPI_IN_PLACE, &digits, 1, MPI_INT, order, comm);
		note(&digits, sizeof digits);
		MPI_Ibarrier(comm, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	MPI_Bcast(data, 0, MPI_INT, 0, comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	error = MPI_Bcast(data, 1, MPI_INT, members + 1, comm);
	CHECK_CLASS(error, MPI_ERR_ROOT);
	error = MPI_Allreduce(data, data + 1, 1, MPI_INT, MPI_OP_NULL, comm);
	CHECK_CLASS(error, MPI_ERR_OP);
	MPI_Type_free(&pair);
	MPI_Op_free(&order);
}

int main(int argc, char **argv)
{
	MPI_Comm half, copy;

	begin(&argc, &argv);
	MPI_Comm_dup(MPI_COMM_WORLD, &copy);
	every(copy);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	every(half);
	MPI_Comm_free(&half);
	MPI_Comm_free(&copy);
	for (int who = 0; argc > 1 && who < size; who++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (who == rank)
			printf("bits %d %016llx\n", rank, (unsigned long long)sum);
	}
	return end("collectives");
}
