/*
 * Every communication call, every predefined operation, many predefined types, compared with results computed
 * in C.
 */
#include "check.h"
#include <stdint.h>

enum { N = 64 };

/* One accumulate of `target op= origin` on the right neighbor; the neighbor's array must then hold
 * `expected`. */
#define ACCUMULATE(type, mpi_type, op, old, new, expected)                                                   \
	do {                                                                                                 \
		type *memory, origin[N];                                                                     \
		MPI_Win win;                                                                                 \
		MPI_Win_allocate(N * sizeof(type), sizeof(type), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,     \
				 &win);                                                                      \
		for (int i = 0; i < N; i++) {                                                                \
			memory[i] = (type)(old);                                                             \
			origin[i] = (type)(new);                                                             \
		}                                                                                            \
		MPI_Win_fence(0, win);                                                                       \
		MPI_Accumulate(origin, N, mpi_type, right(), 0, N, mpi_type, op, win);                       \
		MPI_Win_fence(0, win);                                                                       \
		int wrong = 0;                                                                               \
		for (int i = 0; i < N; i++)                                                                  \
			wrong += memory[i] != (type)(expected);                                              \
		if (wrong)                                                                                   \
			printf("%s %s: %d wrong\n", #mpi_type, #op, wrong);                                  \
		CHECK_EQUAL(wrong, 0);                                                                       \
		MPI_Win_free(&win);                                                                          \
	} while (0)

#define ARITHMETIC(type, mpi_type)                                                                           \
	do {                                                                                                 \
		ACCUMULATE(type, mpi_type, MPI_SUM, i + 1, 3, i + 4);                                        \
		ACCUMULATE(type, mpi_type, MPI_PROD, i % 10 + 1, 3, (i % 10 + 1) * 3);                       \
		ACCUMULATE(type, mpi_type, MPI_MIN, i, 20, i < 20 ? i : 20);                                 \
		ACCUMULATE(type, mpi_type, MPI_MAX, i, 20, i > 20 ? i : 20);                                 \
		ACCUMULATE(type, mpi_type, MPI_REPLACE, i, 20 + i, 20 + i);                                  \
	} while (0)

#define INTEGER(type, mpi_type)                                                                              \
	do {                                                                                                 \
		ARITHMETIC(type, mpi_type);                                                                  \
		ACCUMULATE(type, mpi_type, MPI_LAND, i % 2, 1, i % 2);                                       \
		ACCUMULATE(type, mpi_type, MPI_LOR, i % 2, 0, i % 2);                                        \
		ACCUMULATE(type, mpi_type, MPI_LXOR, i % 2, 1, !(i % 2));                                    \
		ACCUMULATE(type, mpi_type, MPI_BAND, i, 12, i & 12);                                         \
		ACCUMULATE(type, mpi_type, MPI_BOR, i, 12, i | 12);                                          \
		ACCUMULATE(type, mpi_type, MPI_BXOR, i, 12, i ^ 12);                                         \
	} while (0)

static void pairs(void)
{
	struct {
		double value;
		int where;
	} * memory, mine = { rank % 3, rank };
	struct {
		int value;
		int where;
	} * small, less = { -rank, rank };
	MPI_Win win;

	MPI_Win_allocate(sizeof *memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	memory->value = -1;
	memory->where = -1;
	MPI_Win_fence(0, win);
	MPI_Accumulate(&mine, 1, MPI_DOUBLE_INT, 0, 0, 1, MPI_DOUBLE_INT, MPI_MAXLOC, win);
	MPI_Win_fence(0, win);
	if (rank == 0) {
		CHECK(memory->value == (size > 2 ? 2 : size - 1));
		CHECK_EQUAL(memory->where, size > 2 ? 2 : size - 1);
	}
	MPI_Win_free(&win);

	MPI_Win_allocate(sizeof *small, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &small, &win);
	small->value = 1;
	small->where = -1;
	MPI_Win_fence(0, win);
	MPI_Accumulate(&less, 1, MPI_2INT, 0, 0, 1, MPI_2INT, MPI_MINLOC, win);
	MPI_Win_fence(0, win);
	if (rank == 0) {
		CHECK_EQUAL(small->value, -(size - 1));
		CHECK_EQUAL(small->where, size - 1);
	}
	MPI_Win_free(&win);
}

static void fetching(void)
{
	long *memory, got[N], origin[N], one = 1, before = -1, sum = 0;
	MPI_Win win;

	MPI_Win_allocate(N * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	for (int i = 0; i < N; i++)
		memory[i] = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);

	/* a counter at rank 0: every ticket is drawn once */
	for (int i = 0; i < 10; i++) {
		MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
		CHECK(before >= 0 && before < 10 * size);
		sum += before;
	}
	MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	CHECK_EQUAL(sum, (long)10 * size * (10 * size - 1) / 2);

	/* no-op reads */
	MPI_Fetch_and_op(NULL, &before, MPI_LONG, 0, 0, MPI_NO_OP, win);
	MPI_Win_flush(0, win);
	CHECK_EQUAL(before, 10 * size);
	MPI_Get_accumulate(NULL, 0, MPI_LONG, got, N, MPI_LONG, 0, 0, N, MPI_LONG, MPI_NO_OP, win);
	MPI_Win_flush(0, win);
	CHECK_EQUAL(got[0], 10 * size);
	MPI_Barrier(MPI_COMM_WORLD);

	/* compare and swap: one winner */
	long swap = rank + 1, expected = 0, found = -1;
	MPI_Compare_and_swap(&swap, &expected, &found, MPI_LONG, 0, 1, win);
	MPI_Win_flush(0, win);
	int won = found == 0, winners;
	MPI_Allreduce(&won, &winners, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	CHECK_EQUAL(winners, 1);

	/* get-accumulate adds and fetches, element by element */
	for (int i = 0; i < N; i++)
		origin[i] = 1;
	MPI_Get_accumulate(origin, N - 8, MPI_LONG, got, N - 8, MPI_LONG, right(), 8, N - 8, MPI_LONG,
			   MPI_SUM, win);
	MPI_Win_flush(right(), win);
	for (int i = 0; i < N - 8; i++)
		CHECK_EQUAL(got[i], 0);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	for (int i = 8; i < N; i++)
		CHECK_EQUAL(memory[i], 1);
	MPI_Win_unlock(rank, win);
	MPI_Win_free(&win);
}

/* All ranks add to all slots of rank 0 at once, with long and short accumulates: no addition may be lost. */
static void contended(void)
{
	enum { LONG = 1000, ROUNDS = 20 };
	static double ones[LONG];
	double *memory;
	MPI_Win win;

	MPI_Win_allocate(LONG * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	for (int i = 0; i < LONG; i++) {
		memory[i] = 0;
		ones[i] = 1;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Accumulate(ones, LONG, MPI_DOUBLE, 0, 0, LONG, MPI_DOUBLE, MPI_SUM, win);
		MPI_Accumulate(ones, 1, MPI_DOUBLE, 0, round, 1, MPI_DOUBLE, MPI_SUM, win);
	}
	MPI_Win_unlock(0, win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	if (rank == 0)
		for (int i = 0; i < LONG; i++)
			CHECK_EQUAL(memory[i], size * (ROUNDS + (i < ROUNDS)));
	MPI_Win_unlock(rank, win);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	INTEGER(signed char, MPI_SIGNED_CHAR);
	INTEGER(unsigned char, MPI_UNSIGNED_CHAR);
	INTEGER(short, MPI_SHORT);
	INTEGER(unsigned short, MPI_UNSIGNED_SHORT);
	INTEGER(int, MPI_INT);
	INTEGER(unsigned, MPI_UNSIGNED);
	INTEGER(long, MPI_LONG);
	INTEGER(unsigned long long, MPI_UNSIGNED_LONG_LONG);
	INTEGER(int8_t, MPI_INT8_T);
	INTEGER(uint16_t, MPI_UINT16_T);
	INTEGER(int32_t, MPI_INT32_T);
	INTEGER(uint64_t, MPI_UINT64_T);
	INTEGER(MPI_Aint, MPI_AINT);
	ARITHMETIC(float, MPI_FLOAT);
	ARITHMETIC(double, MPI_DOUBLE);
	ACCUMULATE(_Bool, MPI_C_BOOL, MPI_LAND, i % 2, 1, i % 2);
	ACCUMULATE(unsigned char, MPI_BYTE, MPI_BXOR, i, 12, i ^ 12);
	ACCUMULATE(double _Complex, MPI_C_DOUBLE_COMPLEX, MPI_SUM, i, 3, i + 3);
	ACCUMULATE(double _Complex, MPI_C_DOUBLE_COMPLEX, MPI_PROD, i, 3, i * 3);
	pairs();
	fetching();
	contended();
	return end("operations");
}
