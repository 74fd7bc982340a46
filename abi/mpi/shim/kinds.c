/*
 * Windows that stay the host's: those with memory that the processor may be unable to load from and store to
 * (MPI-4.1 section 12.2.1, the hints about memory kinds), and those with members that are not served. Once
 * such a window exists, each call checks whose window it got.
 */
#include "shim.h"
#include <string.h>

bool host_has_windows;

/*
 * Whether a list of memory kinds contains one other than host memory, as "system,mpi:alloc_mem,cuda:device"
 * does.
 */
static bool names_other(const char *kinds)
{
	for (const char *kind = kinds; *kind; kind += strcspn(kind, ","), kind += *kind == ',') {
		size_t length = strcspn(kind, ":,");

		if (!(length == 6 && strncmp(kind, "system", 6) == 0) &&
		    !(length == 3 && strncmp(kind, "mpi", 3) == 0))
			return true;
	}
	return false;
}

/* Whether the host knows these hints, which came with MPI 4.1. With an older host the other ranks need not
 * be asked. */
static bool has_kinds(void)
{
	int major = 0, minor = 0;

	return !PMPI_Get_version(&major, &minor) && (major > 4 || (major == 4 && minor > 0));
}

/* Whether a window is the host's. Collective, because the hint may be given at only some of the ranks. */
bool kinds_are_the_hosts(MPI_Info info, MPI_Comm comm)
{
	static const char *const keys[] = { "mpi_assert_memory_alloc_kinds", "mpi_memory_alloc_kinds" };
	char kinds[MPI_MAX_INFO_VAL + 1];
	int found, between = 0, other = 0, any = 0;

	if (comm == MPI_COMM_NULL || PMPI_Comm_test_inter(comm, &between) || between)
		return false; /* an error, which the shim reports */
	if (!comm_is_served(comm)) {
		host_has_windows = true;
		return true;
	}
	if (!has_kinds())
		return false;
	for (int i = 0; i < 2 && info != MPI_INFO_NULL; i++) {
		found = 0;
		if (!PMPI_Info_get(info, keys[i], MPI_MAX_INFO_VAL, kinds, &found) && found)
			other |= names_other(kinds);
	}
	if (PMPI_Allreduce(&other, &any, 1, MPI_INT, MPI_LOR, comm))
		return false;
	if (any) {
		host_has_windows = true;
		warn_once("windows of other memory than the host's are left to the program's MPI");
	}
	return any;
}
