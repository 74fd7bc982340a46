/* Rank 1 ends the job while its launcher is stopped for a while. */
#include "check.h"
#include <signal.h>
#include <unistd.h>

static void stop_for_a_while(pid_t launcher)
{
	kill(launcher, SIGSTOP);
	if (fork())
		return;
	usleep(300000);
	kill(launcher, SIGCONT);
	_exit(0);
}

int main(int argc, char **argv)
{
	int *memory;
	MPI_Win win;

	begin(&argc, &argv);
	MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_fence(0, win);
	if (rank == 1) {
		stop_for_a_while(getppid());
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Win_fence(0, win);
	MPI_Win_free(&win);
	return end("late_launcher");
}
