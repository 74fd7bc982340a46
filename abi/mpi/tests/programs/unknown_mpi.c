/* An MPI of an unknown kind, with only the functions that unknown_mpi_main.c calls. */
#include <string.h>

int PMPI_Get_library_version(char *text, int *length)
{
	strcpy(text, "Unheard-of MPI 1.0");
	*length = (int)strlen(text);
	return 0;
}

int PMPI_Comm_rank(int comm, int *rank)
{
	*rank = 0;
	return comm;
}

int PMPI_Init(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	return 0;
}
int MPI_Init(int *, char ***) __attribute__((alias("PMPI_Init")));

/* Eight arguments: the last two are on the stack. */
int MPI_Put(const void *a, int b, int c, int d, long e, int f, int g, int h)
{
	return !a && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && g == 7 ? h : -1;
}
