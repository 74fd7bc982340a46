/*
 * Shared by all conformance programs: checks that are counted instead of ending the program, and a verdict.
 *
 * A program is an ordinary MPI program without any reference to Unisono. It runs first on the MPI it was
 * compiled with, then on the preload, and must give the same result: rank 0 prints "ok NAME" if no check
 * failed on any rank; otherwise each failed check prints a line and the program ends with 1.
 */
#ifndef UNISONO_CHECK_H
#define UNISONO_CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, failures;

#define CHECK(condition)                                                                                     \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			printf("rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, #condition);                \
			failures++;                                                                          \
		}                                                                                            \
	} while (0)

#define CHECK_EQUAL(found, expected)                                                                         \
	do {                                                                                                 \
		long long found_ = (long long)(found), expected_ = (long long)(expected);                    \
		if (found_ != expected_) {                                                                   \
			printf("rank %d: %s:%d: %s is %lld, not %lld\n", rank, __FILE__, __LINE__, #found,   \
			       found_, expected_);                                                           \
			failures++;                                                                          \
		}                                                                                            \
	} while (0)

/* Returns the class of an error code. */
static inline int class_of(int code)
{
	int found = MPI_SUCCESS;

	if (code != MPI_SUCCESS)
		MPI_Error_class(code, &found);
	return found;
}

#define CHECK_CLASS(call, expected) CHECK_EQUAL(class_of(call), expected)

static inline void begin(int *argc, char ***argv)
{
	/* whole lines: launchers mix the writes of ranks */
	static char buffer[1 << 14];

	MPI_Init(argc, argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
}

static inline int end(const char *name)
{
	int all = 0;

	MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0 && all == 0)
		printf("ok %s\n", name);
	MPI_Finalize();
	return all != 0;
}

static inline int left(void)
{
	return (rank + size - 1) % size;
}

static inline int right(void)
{
	return (rank + 1) % size;
}

#endif
