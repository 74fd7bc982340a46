/* The preload: exports the names that the program calls, and finds the process's MPI. */
#ifndef UNISONO_MPI_ENTRY_H
#define UNISONO_MPI_ENTRY_H

#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>

/* mpi.c: the ABI of a loaded MPI */
enum abi { UNKNOWN_ABI, MPICH_ABI, OPEN_MPI_ABI, STANDARD_ABI };

/* An MPI library that is loaded in this process. */
struct mpi {
	void *handle; /* the library's, for dlsym(); NULL: no MPI is loaded */
	const char *library;
	enum abi abi;
};

/* Finds the MPI that a call from the code at `caller` reaches. */
struct mpi mpi_of_caller(void *caller);
/* Finds the handle of the module that contains the code at `caller`; NULL if the module is unknown. */
void *module_of(void *caller);
const char *name_of_abi(enum abi abi);

/* unused.c: suppresses the message about an unused MPI */
void nothing_unused(void);

#endif
