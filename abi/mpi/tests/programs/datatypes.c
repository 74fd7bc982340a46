/* Derived datatypes of every constructor, at the origin, at the target and at both, compared with copies
 * made by hand. */
#include "check.h"
#include <stddef.h>

enum { SIDE = 12, CELLS = SIDE * SIDE * SIDE };

static int *memory;
static MPI_Win win;

/*
 * Puts `count` elements of type `from` to the right neighbor as type `to`, and compares the result with MPI's
 * own message to itself.
 */
static void moved(const int *origin, int count, MPI_Datatype from, int to_count, MPI_Datatype to)
{
	static int expected[CELLS], got[CELLS], back[CELLS];
	int received[CELLS];

	for (int i = 0; i < CELLS; i++)
		memory[i] = expected[i] = got[i] = back[i] = received[i] = -1;
	/* the neighbors' origins differ only by their rank times 10,000 */
	static int theirs[CELLS];
	for (int i = 0; i < CELLS; i++)
		theirs[i] = origin[i] - 10000 * rank + 10000 * left();
	MPI_Sendrecv(theirs, count, from, 0, 0, expected, to_count, to, 0, 0, MPI_COMM_SELF,
		     MPI_STATUS_IGNORE);

	MPI_Win_fence(0, win);
	MPI_Put(origin, count, from, right(), 0, to_count, to, win);
	MPI_Win_fence(0, win);
	CHECK(memcmp(memory, expected, sizeof expected) == 0);

	/* and back again; a fence on this rank says nothing about the neighbor's fence */
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, right(), 0, win);
	MPI_Get(back, count, from, right(), 0, to_count, to, win);
	MPI_Win_unlock(right(), win);
	MPI_Sendrecv(origin, count, from, 0, 0, received, count, from, 0, 0, MPI_COMM_SELF,
		     MPI_STATUS_IGNORE);
	CHECK(memcmp(back, received, sizeof back) == 0);
	MPI_Barrier(MPI_COMM_WORLD);

	/* accumulate onto ones */
	for (int i = 0; i < CELLS; i++)
		memory[i] = 1;
	MPI_Win_fence(0, win);
	MPI_Accumulate(origin, count, from, right(), 0, to_count, to, MPI_SUM, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < CELLS; i++)
		if (expected[i] != -1)
			CHECK_EQUAL(memory[i], expected[i] + 1);
		else
			CHECK_EQUAL(memory[i], 1);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void with(const int *origin, MPI_Datatype type, int count)
{
	int size_of_type;

	MPI_Type_commit(&type);
	MPI_Type_size(type, &size_of_type);
	int ints = count * size_of_type / (int)sizeof(int);
	moved(origin, count, type, ints, MPI_INT);
	moved(origin, ints, MPI_INT, count, type);
	moved(origin, count, type, count, type);
	MPI_Type_free(&type);
}

/* a target type with so many blocks that its description is longer than any message */
static void scattered(void)
{
	enum { BLOCKS = 100000, LENGTH = BLOCKS + BLOCKS / 2 };
	int *cells, *lengths = calloc(BLOCKS, sizeof(int)), *places = calloc(BLOCKS, sizeof(int));
	int *values = calloc(LENGTH, sizeof(int)), *back = calloc(LENGTH, sizeof(int));
	MPI_Datatype type;
	MPI_Win large;

	for (int i = 0; i < BLOCKS; i++) {
		lengths[i] = 1 + i % 2;
		places[i] = 3 * (BLOCKS - 1 - i);
	}
	for (int i = 0; i < LENGTH; i++)
		values[i] = i + rank;
	MPI_Type_indexed(BLOCKS, lengths, places, MPI_INT, &type);
	MPI_Type_commit(&type);
	MPI_Win_allocate(3 * BLOCKS * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &cells,
			 &large);
	for (int i = 0; i < 3 * BLOCKS; i++)
		cells[i] = -1;
	MPI_Win_fence(0, large);
	MPI_Put(values, LENGTH, MPI_INT, right(), 0, 1, type, large);
	MPI_Win_fence(0, large);
	int wrong = 0, next = 0;
	for (int i = 0; i < BLOCKS; i++) {
		for (int j = 0; j < 3; j++)
			wrong += cells[places[i] + j] != (j < lengths[i] ? next + j + left() : -1);
		next += lengths[i];
	}
	CHECK_EQUAL(wrong, 0);
	MPI_Get(back, LENGTH, MPI_INT, right(), 0, 1, type, large);
	MPI_Win_fence(0, large);
	CHECK(memcmp(back, values, LENGTH * sizeof(int)) == 0);
	MPI_Win_free(&large);
	MPI_Type_free(&type);
	free(lengths);
	free(places);
	free(values);
	free(back);
}

/* Results at absolute addresses of the origin, for windows of each kind. */
static void absolute_results(void)
{
	static int mine[4];
	int *base = mine, results[2], ones[2] = { 1, 1 }, lengths[2] = { 1, 1 };
	MPI_Aint addresses[2], here = 0, there = 0;
	MPI_Datatype type;
	MPI_Win windows[3];

	for (int i = 0; i < 2; i++)
		MPI_Get_address(&results[i], &addresses[i]);
	MPI_Type_create_hindexed(2, lengths, addresses, MPI_INT, &type);
	MPI_Type_commit(&type);
	MPI_Win_allocate(sizeof mine, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &windows[0]);
	MPI_Win_create(mine, sizeof mine, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &windows[1]);
	MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &windows[2]);
	MPI_Win_attach(windows[2], mine, sizeof mine);
	for (int kind = 0; kind < 3; kind++) {
		int *memory = kind ? mine : base;

		if (kind == 2) {
			MPI_Get_address(mine, &here);
			MPI_Sendrecv(&here, 1, MPI_AINT, left(), 0, &there, 1, MPI_AINT, right(), 0,
				     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
		for (int i = 0; i < 4; i++)
			memory[i] = 100 * rank + i;
		MPI_Barrier(MPI_COMM_WORLD);
		results[0] = results[1] = -1;
		MPI_Win_lock(MPI_LOCK_SHARED, right(), 0, windows[kind]);
		MPI_Get(MPI_BOTTOM, 1, type, right(), there, 2, MPI_INT, windows[kind]);
		MPI_Win_unlock(right(), windows[kind]);
		CHECK_EQUAL(results[0], 100 * right());
		CHECK_EQUAL(results[1], 100 * right() + 1);
		results[0] = results[1] = -1;
		MPI_Win_lock(MPI_LOCK_SHARED, right(), 0, windows[kind]);
		MPI_Get_accumulate(ones, 2, MPI_INT, MPI_BOTTOM, 1, type, right(),
				   there + (kind == 2 ? 2 * sizeof(int) : 2), 2, MPI_INT, MPI_SUM,
				   windows[kind]);
		MPI_Win_unlock(right(), windows[kind]);
		CHECK_EQUAL(results[0], 100 * right() + 2);
		CHECK_EQUAL(results[1], 100 * right() + 3);
		MPI_Barrier(MPI_COMM_WORLD);
		CHECK_EQUAL(memory[3], 100 * rank + 4);
	}
	MPI_Win_detach(windows[2], mine);
	for (int kind = 0; kind < 3; kind++)
		MPI_Win_free(&windows[kind]);
	MPI_Type_free(&type);
}

/* Pairs are the same data as structures, and their padding is not theirs. A structure may have no block. */
static void pairs_and_nothing(void)
{
	struct element {
		double value;
		int index, other;
	} * part, sent = { 1.5, 42, 7 }, got = { 0, 0, 9 };
	int lengths[] = { 1, 1 };
	MPI_Aint places[] = { 0, offsetof(struct element, index) };
	MPI_Datatype members[] = { MPI_DOUBLE, MPI_INT }, structure, nothing;
	MPI_Win window;

	MPI_Type_create_struct(2, lengths, places, members, &structure);
	MPI_Type_commit(&structure);
	MPI_Type_create_struct(0, NULL, NULL, NULL, &nothing);
	MPI_Type_commit(&nothing);
	MPI_Win_allocate(3 * sizeof *part, sizeof *part, MPI_INFO_NULL, MPI_COMM_WORLD, &part, &window);
	for (int i = 0; i < 3; i++)
		part[i] = (struct element){ 0, 0, 100 + i };
	MPI_Win_fence(0, window);
	MPI_Put(&sent, 1, MPI_DOUBLE_INT, right(), 0, 1, structure, window);
	MPI_Put(&sent, 1, structure, right(), 1, 1, MPI_DOUBLE_INT, window);
	MPI_Put(&sent, 1, MPI_DOUBLE_INT, right(), 2, 1, MPI_DOUBLE_INT, window);
	MPI_Put(&sent, 5, nothing, right(), 0, 1, nothing, window);
	MPI_Put(&sent, 0, MPI_INT, right(), 0, 3, nothing, window);
	MPI_Win_fence(0, window);
	for (int i = 0; i < 3; i++) {
		CHECK(part[i].value == 1.5);
		CHECK_EQUAL(part[i].index, 42);
		CHECK_EQUAL(part[i].other, 100 + i);
	}
	MPI_Win_fence(0, window);
	sent.value = 2.5;
	MPI_Accumulate(&sent, 1, MPI_DOUBLE_INT, right(), 1, 1, MPI_DOUBLE_INT, MPI_MAXLOC, window);
	MPI_Win_fence(0, window);
	MPI_Get(&got, 1, MPI_DOUBLE_INT, right(), 1, 1, MPI_DOUBLE_INT, window);
	MPI_Win_fence(0, window);
	CHECK(got.value == 2.5);
	CHECK_EQUAL(got.index, 42);
	CHECK_EQUAL(got.other, 9);
	MPI_Type_free(&structure);
	MPI_Type_free(&nothing);
	MPI_Win_free(&window);

	/* padding between the two */
	struct {
		short value, other;
		int index;
	} * gap, whole = { 3, 4, 5 };
	MPI_Win_allocate(2 * sizeof *gap, sizeof *gap, MPI_INFO_NULL, MPI_COMM_WORLD, &gap, &window);
	for (int i = 0; i < 2; i++)
		gap[i].value = gap[i].other = gap[i].index = 9;
	MPI_Win_fence(0, window);
	MPI_Put(&whole, 1, MPI_SHORT_INT, right(), 1, 1, MPI_SHORT_INT, window);
	MPI_Win_fence(0, window);
	CHECK_EQUAL(gap[0].index, 9);
	CHECK_EQUAL(gap[1].value, 3);
	CHECK_EQUAL(gap[1].other, 9);
	CHECK_EQUAL(gap[1].index, 5);
	MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
	static int origin[CELLS];
	MPI_Datatype type, inner;
	int one = 1;

	begin(&argc, &argv);
	for (int i = 0; i < CELLS; i++)
		origin[i] = 10000 * rank + i;
	MPI_Win_allocate(CELLS * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);

	MPI_Type_contiguous(7, MPI_INT, &type);
	with(origin, type, 3);
	MPI_Type_vector(SIDE, 1, SIDE, MPI_INT, &type);
	with(origin, type, 1);
	MPI_Type_vector(SIDE, 2, SIDE, MPI_INT, &type);
	with(origin, type, 2);
	MPI_Type_create_hvector(5, 3, 100, MPI_INT, &type);
	with(origin, type, 2);
	int lengths[] = { 1, 3, 0, 2 }, places[] = { 20, 0, 7, 9 };
	MPI_Type_indexed(4, lengths, places, MPI_INT, &type);
	with(origin, type, 2);
	MPI_Type_create_indexed_block(4, 2, places, MPI_INT, &type);
	with(origin, type, 2);
	MPI_Aint byte_places[] = { 80, 0, 40, 48 };
	MPI_Type_create_hindexed(4, lengths, byte_places, MPI_INT, &type);
	with(origin, type, 2);
	MPI_Type_create_hindexed_block(3, 1, byte_places, MPI_INT, &type);
	with(origin, type, 2);

	/* backwards: the first element of the data is last in memory, before the buffer except for a shift */
	MPI_Aint end_of_line = (SIDE - 1) * sizeof(int);
	MPI_Type_vector(SIDE, 1, -1, MPI_INT, &inner);
	MPI_Type_create_hindexed(1, &one, &end_of_line, inner, &type);
	MPI_Type_free(&inner);
	with(origin, type, 1);
	MPI_Type_create_hvector(4, 2, -16, MPI_INT, &inner);
	MPI_Type_create_hindexed_block(1, 1, (MPI_Aint[]){ 200 }, inner, &type);
	MPI_Type_free(&inner);
	with(origin, type, 2);

	/* an unstructured mesh: hundreds of blocks in no order */
	enum { BLOCKS = CELLS / 4 };
	static int where[BLOCKS];
	for (int i = 0; i < BLOCKS; i++)
		where[i] = (i * 173 % BLOCKS) * 4 + i % 2;
	MPI_Type_create_indexed_block(BLOCKS, 1, where, MPI_INT, &type);
	with(origin, type, 1);

	/* columns of a matrix, one after the other: a resized vector */
	MPI_Type_vector(SIDE, 1, SIDE, MPI_INT, &inner);
	MPI_Type_create_resized(inner, 0, sizeof(int), &type);
	MPI_Type_free(&inner);
	with(origin, type, SIDE);

	/* a face of a cube, and an inner block of it */
	int sizes[] = { SIDE, SIDE, SIDE }, part[] = { SIDE, 1, SIDE }, at[] = { 0, 3, 0 };
	MPI_Type_create_subarray(3, sizes, part, at, MPI_ORDER_C, MPI_INT, &type);
	with(origin, type, 1);
	int block[] = { 2, 3, 4 }, from[] = { 1, 2, 3 };
	MPI_Type_create_subarray(3, sizes, block, from, MPI_ORDER_FORTRAN, MPI_INT, &type);
	with(origin, type, 1);

	/* a distributed array's part */
	int how[] = { MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC };
	int arguments[] = { MPI_DISTRIBUTE_DFLT_DARG, 2 }, grid[] = { 2, 2 }, plane[] = { SIDE, SIDE };
	MPI_Type_create_darray(4, 1, 2, plane, how, arguments, grid, MPI_ORDER_C, MPI_INT, &type);
	with(origin, type, 1);

	/* a struct of vectors, and duplicates of it */
	MPI_Type_vector(3, 1, 4, MPI_INT, &inner);
	MPI_Datatype members[] = { MPI_INT, inner, MPI_INT };
	int counts[] = { 2, 1, 1 };
	MPI_Aint offsets[] = { 0, 16, 120 };
	MPI_Datatype together;
	MPI_Type_create_struct(3, counts, offsets, members, &together);
	MPI_Type_dup(together, &type);
	MPI_Type_free(&together);
	MPI_Type_free(&inner);
	with(origin, type, 2);

	/* types made and freed over and over again: an old description must not serve a new type */
	for (int stride = 2; stride < 40; stride++) {
		MPI_Type_vector(4, 1, stride, MPI_INT, &type);
		MPI_Type_commit(&type);
		moved(origin, 1, type, 1, type);
		MPI_Type_free(&type);
	}
	MPI_Win_free(&win);
	scattered();
	absolute_results();
	pairs_and_nothing();

	/* absolute addresses at the origin, and at a dynamic window's target */
	int value = 4000 + rank, exposed = -1, result = -1;
	MPI_Aint address, here, *there = calloc(size, sizeof *there);
	MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_attach(win, &exposed, sizeof exposed);
	MPI_Get_address(&exposed, &here);
	MPI_Allgather(&here, 1, MPI_AINT, there, 1, MPI_AINT, MPI_COMM_WORLD);
	MPI_Get_address(&value, &address);
	MPI_Type_create_hindexed(1, &one, &address, MPI_INT, &type);
	MPI_Type_commit(&type);
	MPI_Win_fence(0, win);
	MPI_Put(MPI_BOTTOM, 1, type, right(), there[right()], 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	CHECK_EQUAL(exposed, 4000 + left());
	MPI_Type_free(&type);
	MPI_Type_create_hindexed(1, &one, &there[right()], MPI_INT, &type);
	MPI_Type_commit(&type);
	MPI_Get(&result, 1, MPI_INT, right(), 0, 1, type, win);
	MPI_Win_fence(0, win);
	CHECK_EQUAL(result, 4000 + rank);
	MPI_Type_free(&type);
	MPI_Win_detach(win, &exposed);
	MPI_Win_free(&win);
	free(there);
	return end("datatypes");
}
