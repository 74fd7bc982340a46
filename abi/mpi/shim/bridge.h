/*
 * Between the preload and a bridge. The preload is the same for all MPIs: it exports the names of the calls,
 * finds out at the first call which MPI this process has, and opens the bridge of that MPI's ABI. A bridge is
 * the shim, compiled for one ABI; it defines MPI_X for each call that it serves, and reaches the host MPI
 * through find().
 */
#ifndef UNISONO_MPI_BRIDGE_H
#define UNISONO_MPI_BRIDGE_H

struct services {
	/* A function or datum of the host MPI, or of a tool that stands before it; NULL if there is none. */
	void *(*find)(const char *name);
};

/* What the preload calls when it has opened a bridge, before all other functions of the bridge. */
#define BRIDGE_START unisono_mpi_bridge_start
typedef void bridge_start(const struct services *services);

#endif
