int MPI_Init(int *, char ***);
int MPI_Put(const void *, int, int, int, long, int, int, int);

int main(void)
{
	MPI_Init(0, 0);
	/* the MPI's result becomes the exit code */
	return MPI_Put(0, 2, 3, 4, 5, 6, 7, 8) == 8 && MPI_Put(0, 2, 3, 4, 5, 6, 7, 9) == 9 ? 40 : 41;
}
