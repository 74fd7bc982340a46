/* Values from the launcher's environment variables. */
#ifndef UNISONO_MPI_LAUNCHER_H
#define UNISONO_MPI_LAUNCHER_H

int number_in_environment(const char *name); /* 0 if it is not set */
int rank_of_launcher(void);
const char *launchers_mpi(void);

#endif
