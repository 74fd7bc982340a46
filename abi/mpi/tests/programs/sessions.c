/* A session in place of MPI_Init: there is no MPI_COMM_WORLD. */
#include "check.h"

int main(int argc, char **argv)
{
#if MPI_VERSION >= 4
	MPI_Session session;
	MPI_Group group;
	MPI_Comm comm;
	MPI_Win win;
	int *memory, all = 0, value;

	MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
	MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
	MPI_Comm_create_from_group(group, "windows", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
	MPI_Group_free(&group);
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	for (int round = 0; round < 10; round++) {
		MPI_Win_allocate(16, 4, MPI_INFO_NULL, comm, &memory, &win);
		value = rank + round;
		MPI_Win_fence(0, win);
		MPI_Put(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, win);
		MPI_Win_fence(0, win);
		CHECK_EQUAL(*memory, left() + round);
		MPI_Barrier(comm);
		MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
		CHECK_CLASS(MPI_Win_unlock(0, win), MPI_ERR_RMA_SYNC);
		MPI_Win_free(&win);
	}
	MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, comm);
	if (rank == 0 && all == 0)
		printf("ok sessions\n");
	MPI_Comm_free(&comm);
	MPI_Session_finalize(&session);
	return all != 0;
#else
	begin(&argc, &argv);
	return end("sessions");
#endif
}
