/* Signals interrupt system calls while MPI begins: the program has a timer, and a handler without SA_RESTART.
 */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

static void on_alarm(int signal)
{
	(void)signal;
}

int main(int argc, char **argv)
{
	struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { 0 };
	struct sigaction action = { .sa_handler = on_alarm };
	int sum = 0;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	begin(&argc, &argv);
	setitimer(ITIMER_REAL, &never, NULL);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	CHECK_EQUAL(sum, size * (size - 1) / 2);
	return end("signals");
}
