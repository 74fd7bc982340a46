/*
 * The interface between the preload and a bridge. The preload is the same for all MPIs: it exports the names
 * of the calls, finds out at the first call which MPI the process has, and opens the bridge of that MPI's
 * ABI. A bridge is the shim, compiled for one ABI; it defines MPI_X for each call that it serves, and reaches
 * the host MPI through find().
 */
#ifndef UNISONO_MPI_BRIDGE_H
#define UNISONO_MPI_BRIDGE_H

struct services {
	/* Finds a function or data object of the host MPI, or of a tool that wraps it; NULL if there is
	 * none. */
	void *(*find)(const char *name);
	/* Finds the function that a name means in the code at `caller`, without this preload; ends the
	 * program if there is none. */
	void *(*find_for)(const char *name, void *caller);
};

/* The function of a bridge that the preload calls first, right after opening the bridge. */
#define BRIDGE_START unisono_mpi_bridge_start
typedef void bridge_start(const struct services *services);

#endif
