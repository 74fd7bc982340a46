/*
 * Every predefined operation on every predefined type for which the standard permits it (MPI-4.0 section
 * 6.9.2), by accumulate, get-accumulate and fetch-and-op, compared with the results of the host's own
 * MPI_Reduce_local. MPI_REPLACE and MPI_NO_OP apply to every type. Types that an MPI or its compilers lack
 * are null handles and are skipped.
 *
 * Quadruple-precision floats are only replaced and read: both hosts compute wrong results with them.
 */
#include "check.h"
#include <complex.h>
#include <stdbool.h>
#include <stdint.h>
#include <wchar.h>

enum { N = 5, MAX_BYTES = 64 };

/* Kinds of types in the standard's table; an operation lists the kinds that it applies to. */
enum { INTEGER = 1, FORTRAN = 2, REAL = 4, LOGICAL = 8, COMPLEX = 16, BYTE = 32, MULTI = 64, PAIR = 128 };

/* The memory format of a value. */
enum shape { WHOLE, BOOL, F, D, LD, CF, CD, CLD, F_INT, D_INT, LD_INT, I_INT, L_INT, S_INT, F_F, D_D, BITS };

static const struct {
	const char *name;
	MPI_Datatype type;
	int kind;
	enum shape shape;
} * type, types[] = {
#define T(type, kind, shape)                                                                                 \
	{                                                                                                    \
#type, type, kind, shape                                                                     \
	}
	T(MPI_SIGNED_CHAR, INTEGER, WHOLE),
	T(MPI_UNSIGNED_CHAR, INTEGER, WHOLE),
	T(MPI_SHORT, INTEGER, WHOLE),
	T(MPI_UNSIGNED_SHORT, INTEGER, WHOLE),
	T(MPI_INT, INTEGER, WHOLE),
	T(MPI_UNSIGNED, INTEGER, WHOLE),
	T(MPI_LONG, INTEGER, WHOLE),
	T(MPI_UNSIGNED_LONG, INTEGER, WHOLE),
	T(MPI_LONG_LONG_INT, INTEGER, WHOLE),
	T(MPI_LONG_LONG, INTEGER, WHOLE),
	T(MPI_UNSIGNED_LONG_LONG, INTEGER, WHOLE),
	T(MPI_INT8_T, INTEGER, WHOLE),
	T(MPI_INT16_T, INTEGER, WHOLE),
	T(MPI_INT32_T, INTEGER, WHOLE),
	T(MPI_INT64_T, INTEGER, WHOLE),
	T(MPI_UINT8_T, INTEGER, WHOLE),
	T(MPI_UINT16_T, INTEGER, WHOLE),
	T(MPI_UINT32_T, INTEGER, WHOLE),
	T(MPI_UINT64_T, INTEGER, WHOLE),
	T(MPI_INTEGER, FORTRAN, WHOLE),
	T(MPI_INTEGER1, FORTRAN, WHOLE),
	T(MPI_INTEGER2, FORTRAN, WHOLE),
	T(MPI_INTEGER4, FORTRAN, WHOLE),
	T(MPI_INTEGER8, FORTRAN, WHOLE),
	T(MPI_FLOAT, REAL, F),
	T(MPI_DOUBLE, REAL, D),
	T(MPI_LONG_DOUBLE, REAL, LD),
	T(MPI_REAL, REAL, F),
	T(MPI_DOUBLE_PRECISION, REAL, D),
	T(MPI_REAL4, REAL, F),
	T(MPI_REAL8, REAL, D),
	T(MPI_REAL16, 0, BITS),
	T(MPI_LOGICAL, LOGICAL, BOOL),
	T(MPI_C_BOOL, LOGICAL, BOOL),
	T(MPI_CXX_BOOL, LOGICAL, BOOL),
	T(MPI_COMPLEX, COMPLEX, CF),
	T(MPI_C_COMPLEX, COMPLEX, CF),
	T(MPI_C_FLOAT_COMPLEX, COMPLEX, CF),
	T(MPI_C_DOUBLE_COMPLEX, COMPLEX, CD),
	T(MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX, CLD),
	T(MPI_CXX_FLOAT_COMPLEX, COMPLEX, CF),
	T(MPI_CXX_DOUBLE_COMPLEX, COMPLEX, CD),
	T(MPI_CXX_LONG_DOUBLE_COMPLEX, COMPLEX, CLD),
	T(MPI_DOUBLE_COMPLEX, COMPLEX, CD),
	T(MPI_COMPLEX8, COMPLEX, CF),
	T(MPI_COMPLEX16, COMPLEX, CD),
	T(MPI_COMPLEX32, 0, BITS),
	T(MPI_BYTE, BYTE, WHOLE),
	T(MPI_AINT, MULTI, WHOLE),
	T(MPI_OFFSET, MULTI, WHOLE),
	T(MPI_COUNT, MULTI, WHOLE),
	T(MPI_FLOAT_INT, PAIR, F_INT),
	T(MPI_DOUBLE_INT, PAIR, D_INT),
	T(MPI_LONG_INT, PAIR, L_INT),
	T(MPI_2INT, PAIR, I_INT),
	T(MPI_SHORT_INT, PAIR, S_INT),
	T(MPI_LONG_DOUBLE_INT, PAIR, LD_INT),
	T(MPI_2REAL, PAIR, F_F),
	T(MPI_2DOUBLE_PRECISION, PAIR, D_D),
	T(MPI_2INTEGER, PAIR, I_INT),
	T(MPI_CHAR, 0, BITS),
	T(MPI_CHARACTER, 0, BITS),
	T(MPI_WCHAR, 0, BITS),
	T(MPI_PACKED, 0, BITS),
};

static const struct {
	const char *name;
	MPI_Op op;
	int kinds;
} * operation, operations[] = {
#define O(op, kinds)                                                                                         \
	{                                                                                                    \
#op, op, kinds                                                                               \
	}
	O(MPI_MAX, INTEGER | FORTRAN | REAL | MULTI),
	O(MPI_MIN, INTEGER | FORTRAN | REAL | MULTI),
	O(MPI_SUM, INTEGER | FORTRAN | REAL | COMPLEX | MULTI),
	O(MPI_PROD, INTEGER | FORTRAN | REAL | COMPLEX | MULTI),
	O(MPI_LAND, INTEGER | LOGICAL),
	O(MPI_LOR, INTEGER | LOGICAL),
	O(MPI_LXOR, INTEGER | LOGICAL),
	O(MPI_BAND, INTEGER | FORTRAN | BYTE | MULTI),
	O(MPI_BOR, INTEGER | FORTRAN | BYTE | MULTI),
	O(MPI_BXOR, INTEGER | FORTRAN | BYTE | MULTI),
	O(MPI_MINLOC, PAIR),
	O(MPI_MAXLOC, PAIR),
	O(MPI_REPLACE, ~0),
	O(MPI_NO_OP, ~0),
};

static MPI_Aint extent;

#define PUT(c_type, at, value)                                                                               \
	do {                                                                                                 \
		c_type put_ = (c_type)(value);                                                               \
		memcpy((char *)where + (at), &put_,                                                          \
		       sizeof put_ < 10 ? sizeof put_ : put_bytes(sizeof put_));                             \
	} while (0)

/* Only ten bytes of a long double hold its value. */
static size_t put_bytes(size_t bytes)
{
	return bytes == sizeof(long double) ? 10 : bytes;
}

/* A value that affects the result; the padding is zeroed. */
static void fill(void *where, int seed)
{
	int value = seed * 7 % 11 - 5, other = seed * 5 % 7 - 3;

	memset(where, 0, extent);
	switch (type->shape) {
	case WHOLE: {
		/* no value is negative: MPICH 4.0 treats unsigned types, and Open MPI 4.1
		 * MPI_UNSIGNED_LONG, as signed in MPI_MAX, and Open MPI treats MPI_OFFSET as unsigned;
		 * other programs test signs */
		int64_t whole = value + 5;

		memcpy(where, &whole, extent);
		break;
	}
	case BOOL:
		*(char *)where = value > 0;
		break;
	case F:
		PUT(float, 0, value);
		break;
	case D:
		PUT(double, 0, value);
		break;
	case LD:
		PUT(long double, 0, value);
		break;
	case CF:
	case F_F:
		PUT(float, 0, value);
		PUT(float, 4, other);
		break;
	case CD:
	case D_D:
		PUT(double, 0, value);
		PUT(double, 8, other);
		break;
	case CLD:
		PUT(long double, 0, value);
		PUT(long double, 16, other);
		break;
	case F_INT:
		PUT(float, 0, value);
		PUT(int, 4, other);
		break;
	case D_INT:
		PUT(double, 0, value);
		PUT(int, 8, other);
		break;
	case LD_INT:
		PUT(long double, 0, value);
		PUT(int, 16, other);
		break;
	case I_INT:
		PUT(int, 0, value);
		PUT(int, 4, other);
		break;
	case L_INT:
		PUT(long, 0, value);
		PUT(int, 8, other);
		break;
	case S_INT:
		PUT(short, 0, value);
		PUT(int, 4, other);
		break;
	case BITS:
		for (MPI_Aint i = 0; i < extent; i++)
			((char *)where)[i] = (char)(seed * 37 + i);
	}
}

/* Whether byte `at` of an element is part of its value. */
static bool counts(MPI_Aint at)
{
	switch (type->shape) {
	case LD:
		return at < 10;
	case CLD:
		return at % 16 < 10;
	case LD_INT:
		return at < 10 || (at >= 16 && at < 20);
	case D_INT:
	case L_INT:
		return at < 12;
	case S_INT:
		return at < 2 || at >= 4;
	default:
		return true;
	}
}

static void compare(const char *call, const char *found, const char *expected, int count)
{
	for (MPI_Aint i = 0; i < count * extent; i++)
		if (counts(i % extent) && found[i] != expected[i]) {
			printf("rank %d: %s of %s by %s: byte %ld is %d, not %d\n", rank, operation->name,
			       type->name, call, (long)i, found[i], expected[i]);
			failures++;
			return;
		}
}

static void done(const char *call, int code)
{
	char words[MPI_MAX_ERROR_STRING] = "";
	int length;

	if (!code)
		return;
	MPI_Error_string(code, words, &length);
	printf("rank %d: %s of %s by %s: %s\n", rank, operation->name, type->name, call, words);
	failures++;
}

static void pair(MPI_Win win, char *memory)
{
	static char old[N * MAX_BYTES], origin[N * MAX_BYTES], expected[N * MAX_BYTES], result[N * MAX_BYTES];

	for (int i = 0; i < N; i++) {
		fill(old + i * extent, i + rank);
		fill(origin + i * extent, 3 * i + 1 + rank);
	}
	memcpy(expected, operation->op == MPI_REPLACE ? origin : old, N * extent);
	if (operation->op != MPI_REPLACE && operation->op != MPI_NO_OP)
		done("MPI_Reduce_local", MPI_Reduce_local(origin, expected, N, type->type, operation->op));

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	memcpy(memory, old, N * extent);
	if (operation->op != MPI_NO_OP) {
		done("MPI_Accumulate",
		     MPI_Accumulate(origin, N, type->type, rank, 0, N, type->type, operation->op, win));
		MPI_Win_flush(rank, win);
		compare("MPI_Accumulate", memory, expected, N);
		memcpy(memory, old, N * extent);
	}
	done("MPI_Get_accumulate", MPI_Get_accumulate(origin, N, type->type, result, N, type->type, rank, 0,
						      N, type->type, operation->op, win));
	MPI_Win_flush(rank, win);
	compare("MPI_Get_accumulate", memory, expected, N);
	compare("the result of MPI_Get_accumulate", result, old, N);
	memcpy(memory, old, N * extent);
	done("MPI_Fetch_and_op", MPI_Fetch_and_op(origin, result, type->type, rank, 0, operation->op, win));
	MPI_Win_flush(rank, win);
	compare("MPI_Fetch_and_op", memory, expected, 1);
	compare("the result of MPI_Fetch_and_op", result, old, 1);
	MPI_Win_unlock(rank, win);
}

/* Transfers without elements, for which types without arithmetic and types of several elements are valid
 * with any operation. */
static void nothing(MPI_Win win)
{
	int lengths[] = { 1, 1 }, code;
	MPI_Aint places[] = { 0, 8 };
	MPI_Datatype parts[] = { MPI_INT, MPI_DOUBLE }, mixed;
	MPI_Request request;
	char a[16] = "", b[16] = "";

	MPI_Type_create_struct(2, lengths, places, parts, &mixed);
	MPI_Type_commit(&mixed);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	CHECK_CLASS(MPI_Accumulate(a, 0, MPI_BYTE, 0, 0, 0, MPI_BYTE, MPI_SUM, win), MPI_SUCCESS);
	CHECK_CLASS(MPI_Accumulate(a, 0, mixed, 0, 0, 0, MPI_INT, MPI_SUM, win), MPI_SUCCESS);
	CHECK_CLASS(MPI_Get_accumulate(a, 0, MPI_BYTE, b, 0, MPI_BYTE, 0, 0, 0, MPI_BYTE, MPI_SUM, win),
		    MPI_SUCCESS);
	CHECK_CLASS(MPI_Get_accumulate(a, 0, mixed, b, 0, mixed, 0, 0, 0, mixed, MPI_NO_OP, win),
		    MPI_SUCCESS);
	code = MPI_Raccumulate(a, 0, mixed, 0, 0, 0, MPI_BYTE, MPI_MAXLOC, win, &request);
	CHECK_CLASS(code, MPI_SUCCESS);
	if (!code)
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Win_unlock(0, win);
	MPI_Type_free(&mixed);
}

int main(int argc, char **argv)
{
	char *memory;
	MPI_Aint low;
	MPI_Win win;
	int pairs = 0;

	begin(&argc, &argv);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Win_allocate(N * MAX_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		for (size_t j = 0; j < sizeof operations / sizeof *operations; j++) {
			type = &types[i];
			operation = &operations[j];
			if (type->type == MPI_DATATYPE_NULL ||
			    (operation->kinds != ~0 && !(operation->kinds & type->kind)))
				continue;
			MPI_Type_get_extent(type->type, &low, &extent);
			if (!extent) /* a type that this MPI was built without */
				continue;
			pair(win, memory);
			pairs++;
		}
	CHECK(pairs > 300);
	nothing(win);
	MPI_Win_free(&win);
	return end("operators");
}
