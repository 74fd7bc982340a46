/* MPI_Abort: prints this process's statistics first. */
#include "shim.h"

BOTH(int, Abort, (MPI_Comm comm, int code))
{
	int (*host_abort)(MPI_Comm, int) = (int (*)(MPI_Comm, int))host("PMPI_Abort");

	windows_enter_statistics(true);
	statistics_print_own("which ended the job");
	await_launcher();
	return host_abort(comm, code);
}
