/*
 * Collectives with random shapes: counts up to 40 KB, gaps, types of different sizes at both ends, in place,
 * on duplicates, halves and grids. With an argument each rank prints a hash over all buffers and error
 * classes, so that two runs can be compared. Some results are compared with known values, too.
 */
#include "check.h"
#include <stdint.h>

enum { ROUNDS = 120, MAX_RANKS = 16, MAX_LENGTH = 1500, ROOM = MAX_RANKS * (MAX_LENGTH + 8) };

static uint64_t sum = 14695981039346656037u;
static uint32_t state; /* the same at all ranks */
static int out[ROOM], in[ROOM];
static double wide_out[MAX_LENGTH], wide_in[MAX_LENGTH];
static MPI_Datatype gapped; /* two numbers with a gap of one */

static unsigned below(unsigned limit)
{
	state = state * 1664525u + 1013904223u;
	return (state >> 8) % limit;
}

static void note(const void *data, size_t bytes)
{
	const unsigned char *at = data;

	for (size_t i = 0; i < bytes; i++)
		sum = (sum ^ at[i]) * 1099511628211u;
}

static void note_code(int code)
{
	int class = class_of(code);

	note(&class, sizeof class);
}

static void fill(int own)
{
	for (int i = 0; i < ROOM; i++) {
		out[i] = own * 1000003 + i * 31;
		in[i] = -1 - i;
	}
}

/* Counts and places of each member's part: some are empty, some are followed by a gap. */
static void parts(int members, int length, int counts[], int places[])
{
	int place = 0;

	for (int i = 0; i < members; i++) {
		counts[i] = below(4) ? (int)below((unsigned)length + 1) : 0;
		places[i] = place;
		place += counts[i] + (int)below(5);
	}
}

static void with_root(MPI_Comm comm, int own, int members, int length)
{
	int counts[MAX_RANKS], places[MAX_RANKS], root = (int)below((unsigned)members);
	int in_place = below(2) && own == root;

	parts(members, length, counts, places);
	switch (below(5)) {
	case 0:
		note_code(MPI_Bcast(out, length, MPI_INT, root, comm));
		CHECK_EQUAL(out[length / 2], length ? root * 1000003 + length / 2 * 31 : own * 1000003);
		note(out, sizeof out);
		break;
	case 1:
		note_code(MPI_Gather(in_place ? MPI_IN_PLACE : out, 2, MPI_INT, in, 1, gapped, root, comm));
		break;
	case 2:
		note_code(MPI_Gatherv(in_place ? MPI_IN_PLACE : out, counts[own], MPI_INT, in, counts, places,
				      MPI_INT, root, comm));
		if (own == root && !in_place && counts[0])
			CHECK_EQUAL(in[places[0]], 0);
		break;
	case 3:
		note_code(MPI_Scatter(out, length, MPI_INT, in_place ? MPI_IN_PLACE : in, length, MPI_INT,
				      root, comm));
		if (!in_place && length)
			CHECK_EQUAL(in[0], root * 1000003 + own * length * 31);
		break;
	default:
		note_code(MPI_Scatterv(out, counts, places, MPI_INT, in_place ? MPI_IN_PLACE : in,
				       counts[own], MPI_INT, root, comm));
	}
}

/* The counts of a matrix whose element (from, to) is the same at all ranks. */
static void matrix(int own, int members, int length, int out_counts[], int out_places[], int in_counts[],
		   int in_places[])
{
	int out_place = 0, in_place = 0;

	for (int from = 0; from < members; from++)
		for (int to = 0; to < members; to++) {
			int count = below(4) ? (int)below((unsigned)length + 1) : 0;

			if (from == own) {
				out_counts[to] = count;
				out_places[to] = out_place;
				out_place += count;
			}
			if (to == own) {
				in_counts[from] = count;
				in_places[from] = in_place;
				in_place += count + 1;
			}
		}
}

static void each_to_each(MPI_Comm comm, int own, int members, int length)
{
	int counts[MAX_RANKS], places[MAX_RANKS], in_counts[MAX_RANKS], in_places[MAX_RANKS];
	MPI_Datatype types[MAX_RANKS];
	int in_place = (int)below(2);

	switch (below(5)) {
	case 0:
		note_code(MPI_Allgather(in_place ? MPI_IN_PLACE : out, length, MPI_INT, in, length, MPI_INT,
					comm));
		if (!in_place && length)
			CHECK_EQUAL(in[(members - 1) * length], (members - 1) * 1000003);
		break;
	case 1:
		parts(members, length, counts, places);
		note_code(MPI_Allgatherv(out, counts[own], MPI_INT, in, counts, places, MPI_INT, comm));
		break;
	case 2:
		note_code(MPI_Alltoall(in_place ? MPI_IN_PLACE : out, length, MPI_INT, in, length, MPI_INT,
				       comm));
		if (!in_place && length)
			CHECK_EQUAL(in[0], own * length * 31);
		break;
	case 3:
		matrix(own, members, length, counts, places, in_counts, in_places);
		note_code(
			MPI_Alltoallv(out, counts, places, MPI_INT, in, in_counts, in_places, MPI_INT, comm));
		break;
	default:
		matrix(own, members, length, counts, places, in_counts, in_places);
		for (int i = 0; i < members; i++) {
			places[i] *= (int)sizeof(int);
			in_places[i] *= (int)sizeof(int);
			types[i] = MPI_INT;
		}
		note_code(MPI_Alltoallw(out, counts, places, types, in, in_counts, in_places, types, comm));
	}
}

static void reductions(MPI_Comm comm, int own, int members, int length)
{
	MPI_Op ops[] = { MPI_SUM, MPI_MAX, MPI_BXOR, MPI_PROD };
	MPI_Op op = ops[below(4)], decimal = below(2) ? MPI_SUM : MPI_MAX;
	int counts[MAX_RANKS], places[MAX_RANKS], root = (int)below((unsigned)members);

	parts(members, length / members, counts, places);
	for (int i = 0; i < length; i++)
		wide_out[i] = (own + 1) * 1e-3 * (i % 7 ? 1 : 1e12) + i;
	switch (below(6)) {
	case 0:
		note_code(MPI_Reduce(out, in, length, MPI_INT, op, root, comm));
		note_code(MPI_Reduce(wide_out, wide_in, length, MPI_DOUBLE, decimal, root, comm));
		break;
	case 1:
		note_code(MPI_Scan(out, in, length, MPI_INT, op, comm));
		note_code(MPI_Scan(wide_out, wide_in, length, MPI_DOUBLE, decimal, comm));
		break;
	case 2:
		note_code(MPI_Exscan(out, in, length, MPI_INT, op, comm));
		break;
	case 3:
		note_code(MPI_Reduce_scatter(out, in, counts, MPI_INT, op, comm));
		break;
	case 4:
		note_code(MPI_Reduce_scatter_block(out, in, length / members, MPI_INT, op, comm));
		note_code(MPI_Reduce_scatter_block(wide_out, wide_in, length / members, MPI_DOUBLE, decimal,
						   comm));
		break;
	default:
		note_code(MPI_Allreduce(out, in, length, MPI_INT, op, comm));
		note_code(MPI_Allreduce(wide_out, wide_in, length, MPI_DOUBLE, decimal, comm));
		if (op == MPI_MAX && length)
			CHECK_EQUAL(in[0], (members - 1) * 1000003);
	}
	note(wide_in, sizeof wide_in);
}

/* Exchanges on a ring of all members: the two neighbours may be the same rank, or this rank. */
static void neighbours(MPI_Comm comm, int members, int length)
{
	int dimensions[] = { members }, periods[] = { 1 };
	int counts[] = { length, length }, places[] = { 0, length + 3 };
	MPI_Aint addresses[] = { 0, (length + 3) * (MPI_Aint)sizeof(int) };
	MPI_Datatype types[] = { MPI_INT, MPI_INT };
	MPI_Comm ring;

	MPI_Cart_create(comm, 1, dimensions, periods, 0, &ring);
	switch (below(5)) {
	case 0:
		note_code(MPI_Neighbor_allgather(out, length, MPI_INT, in, length, MPI_INT, ring));
		break;
	case 1:
		note_code(MPI_Neighbor_allgatherv(out, length, MPI_INT, in, counts, places, MPI_INT, ring));
		break;
	case 2:
		note_code(MPI_Neighbor_alltoall(out, length, MPI_INT, in, length, MPI_INT, ring));
		break;
	case 3:
		note_code(MPI_Neighbor_alltoallv(out, counts, places, MPI_INT, in, counts, places, MPI_INT,
						 ring));
		break;
	default:
		note_code(MPI_Neighbor_alltoallw(out, counts, addresses, types, in, counts, addresses, types,
						 ring));
	}
	MPI_Comm_free(&ring);
}

/* Errors that the MPI detects at all members. */
static void errors(MPI_Comm comm, int members)
{
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD,
				MPI_ERRORS_RETURN); /* Open MPI calls it for a missing topology */
	note_code(MPI_Gather(out, 1, MPI_INT, in, 1, MPI_INT, members + 1, comm));
	note_code(MPI_Scatter(out, 1, MPI_INT, in, 1, MPI_INT, -7, comm));
	note_code(MPI_Alltoall(out, -1, MPI_INT, in, -1, MPI_INT, comm));
	note_code(MPI_Allgather(out, 1, MPI_DATATYPE_NULL, in, 1, MPI_DATATYPE_NULL, comm));
	note_code(MPI_Scan(out, in, 1, MPI_INT, MPI_OP_NULL, comm));
	note_code(MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, comm)); /* no topology */
}

static void every(MPI_Comm comm, int rounds)
{
	int own, members;

	MPI_Comm_rank(comm, &own);
	MPI_Comm_size(comm, &members);
	for (int round = 0; round < rounds; round++) {
		int length = (int)(below(4) ? below(40) : below(MAX_LENGTH));

		fill(own);
		switch (below(4)) {
		case 0:
			with_root(comm, own, members, length);
			break;
		case 1:
			each_to_each(comm, own, members, length);
			break;
		case 2:
			reductions(comm, own, members, length);
			break;
		default:
			neighbours(comm, members, length);
		}
		note(in, sizeof in);
	}
	errors(comm, members);
}

int main(int argc, char **argv)
{
	MPI_Comm half, copy;

	begin(&argc, &argv);
	state = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
	if (rank == 0)
		printf("seed %u\n", (unsigned)state);
	MPI_Type_vector(2, 1, 2, MPI_INT, &gapped);
	MPI_Type_commit(&gapped);
	MPI_Comm_dup(MPI_COMM_WORLD, &copy);
	every(copy, ROUNDS);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	state += (uint32_t)(rank % 2);
	every(half, ROUNDS / 2);
	MPI_Comm_free(&half);
	MPI_Comm_free(&copy);
	MPI_Type_free(&gapped);
	for (int who = 0; argc > 1 && who < size; who++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (who == rank)
			printf("bits %d %016llx\n", rank, (unsigned long long)sum);
	}
	return end("exchanges");
}
