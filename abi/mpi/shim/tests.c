/* Calls that test requests. They are the host's own, after the windows' operations among the requests had
 * their turn. */
#include "requests.h"

BOTH(int, Test, (MPI_Request * request, int *flag, MPI_Status *status))
{
	operations_advance(1, request);
	return operations_result(PMPI_Test(request, flag, status));
}

BOTH(int, Testany, (int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status))
{
	operations_advance(count, requests);
	return operations_result(PMPI_Testany(count, requests, index, flag, status));
}

BOTH(int, Testall, (int count, MPI_Request requests[], int *flag, MPI_Status statuses[]))
{
	operations_advance(count, requests);
	return operations_result(PMPI_Testall(count, requests, flag, statuses));
}

BOTH(int, Testsome, (int count, MPI_Request requests[], int *number, int indices[], MPI_Status statuses[]))
{
	operations_advance(count, requests);
	return operations_result(PMPI_Testsome(count, requests, number, indices, statuses));
}

BOTH(int, Request_get_status, (MPI_Request request, int *flag, MPI_Status *status))
{
	operations_advance(1, &request);
	return operations_result(PMPI_Request_get_status(request, flag, status));
}

#if MPI_VERSION >= 4
/* MPI 4.1 has these three forms; an older host has none, and then no program calls them. */
BOTH(int, Request_get_status_all, (int count, const MPI_Request requests[], int *flag, MPI_Status statuses[]))
{
	operations_advance(count, requests);
	return operations_result(OF_HOST(Request_get_status_all)(count, requests, flag, statuses));
}

BOTH(int, Request_get_status_any,
     (int count, const MPI_Request requests[], int *index, int *flag, MPI_Status *status))
{
	operations_advance(count, requests);
	return operations_result(OF_HOST(Request_get_status_any)(count, requests, index, flag, status));
}

BOTH(int, Request_get_status_some,
     (int count, const MPI_Request requests[], int *number, int indices[], MPI_Status statuses[]))
{
	operations_advance(count, requests);
	return operations_result(
		OF_HOST(Request_get_status_some)(count, requests, number, indices, statuses));
}
#endif
