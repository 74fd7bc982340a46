/* The preload: the names that the program calls, and the process's MPI behind them. */
#ifndef UNISONO_MPI_ENTRY_H
#define UNISONO_MPI_ENTRY_H

#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>

/* mpi.c: which ABI a loaded MPI has. */
enum abi { UNKNOWN_ABI, MPICH_ABI, OPEN_MPI_ABI, STANDARD_ABI };

/* An MPI that is loaded in this process. */
struct mpi {
	void *handle; /* of its library, for dlsym(); NULL: there is none */
	const char *library;
	enum abi abi;
};

/* The MPI that a call from the code at `caller` reaches. */
struct mpi mpi_of_caller(void *caller);
/* The handle of the module that the code at `caller` is in; NULL if that is not known. */
void *module_of(void *caller);
const char *name_of_abi(enum abi abi);

/* unused.c: MPI is used after all. */
void nothing_unused(void);

#endif
