/* The bridge's access to the host MPI: its functions by name, and its predefined handles. */
#include "shim.h"
#include "bridge.h"
#include "slots.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct services *services;

void *host_if_any(const char *name)
{
	return services->find(name);
}

/* Finds the host's function with a name; ends the program if there is none. */
void *host(const char *name)
{
	void *function = host_if_any(name);

	if (!function) {
		fprintf(stderr,
			"unisono: the MPI of this program has no %s; start it without 'unisono mpi'\n", name);
		abort();
	}
	return function;
}

void *host_for(const char *name, void *caller)
{
	return services->find_for(name, caller);
}

/* Functions that the shim calls as PMPI_X because it does not define them itself. */
#define HOST(name) SLOT(".hidden PMPI_" #name "\n.globl", "PMPI_" #name)
#include "host_functions.h"
#if defined(HANDLES_ARE_LOOKED_UP)
SLOT(".hidden OMPI_C_MPI_COMM_NULL_COPY_FN\n.globl", "OMPI_C_MPI_COMM_NULL_COPY_FN")
SLOT(".hidden OMPI_C_MPI_TYPE_NULL_COPY_FN\n.globl", "OMPI_C_MPI_TYPE_NULL_COPY_FN")
#endif
SLOTS_FIRST;

void *slot_target(struct slot *slot, void *caller)
{
	void *function = host(slot->name);

	(void)caller;
	atomic_store_explicit(&slot->function, function, memory_order_release);
	return function;
}

#if defined(HANDLES_ARE_LOOKED_UP)
#define DEFINED(type, name, symbol) type name;
PREDEFINED_HANDLES(DEFINED)

static void find_handles(void)
{
/* a handle that this version lacks stays NULL, which no program passes */
#define FOUND(type, name, symbol) name = (type)host_if_any(#symbol);
	PREDEFINED_HANDLES(FOUND)
}
#elif defined(UNISONO_STANDARD_ABI)
MPI_Errhandler errors_return, errors_abort;

static void find_handles(void)
{
	MPI_Errhandler second = (MPI_Errhandler)0x142, third = (MPI_Errhandler)0x143;
	char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
	int length;
	bool intel = !PMPI_Get_library_version(version, &length) && strstr(version, "Intel(R) MPI");

	errors_return = intel ? second : third;
	errors_abort = intel ? third : second;
}
#else
static void find_handles(void)
{
}
#endif

PUBLIC bridge_start BRIDGE_START;

void BRIDGE_START(const struct services *given)
{
	services = given;
	find_handles();
}
