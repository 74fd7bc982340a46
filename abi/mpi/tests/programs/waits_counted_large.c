/* The waits of waits_counted.c by calls with large counts, where the MPI has them. */
#include <mpi.h>

#if MPI_VERSION >= 4
#define MPI_Irecv MPI_Irecv_c
#define MPI_Isend MPI_Isend_c
#define MPI_Recv MPI_Recv_c
#define MPI_Bcast MPI_Bcast_c
#define MPI_Allreduce MPI_Allreduce_c
#endif
#include "waits_counted.c"
