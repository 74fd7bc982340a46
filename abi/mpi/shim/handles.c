/*
 * Window handles: slots of one table. A freed slot is reused as late as possible, so that a stale handle is
 * most likely detected. If C handles are pointers, the Fortran integer is a slot number.
 */
#include "shim.h"
#include <stdio.h>
#include <stdlib.h>

struct window *_Atomic slots[MAX_WINDOWS];
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static size_t next_slot;

int window_register(struct window *window)
{
	int result = MPI_ERR_NO_MEM;

	pthread_mutex_lock(&guard);
	for (size_t tried = 0; tried < MAX_WINDOWS; tried++) {
		size_t slot = next_slot++ % MAX_WINDOWS;

		if (!atomic_load(&slots[slot])) {
			window->handle = handle_of(slot);
			atomic_store(&slots[slot], window);
			result = MPI_SUCCESS;
			break;
		}
	}
	pthread_mutex_unlock(&guard);
	return result;
}

void window_unregister(struct window *window)
{
	atomic_store(&slots[slot_of(window->handle)], NULL);
}

#if HOST_MPICH
/* C handles are integers too; the host implements these conversions as casts. */
MPI_Fint number_of_window(MPI_Win win)
{
	return win;
}

MPI_Win window_of_number(MPI_Fint number)
{
	return number;
}
#else
/* Numbers below this are the host's own. */
enum { FIRST_NUMBER = 0x40000000 };

#if HOST_OPEN_MPI
enum { NUMBER_OF_NULL = 0 };
static const char TO_NUMBER[] = "PMPI_Win_c2f", OF_NUMBER[] = "PMPI_Win_f2c";
#else
enum { NUMBER_OF_NULL = 0x110 }; /* in the standard ABI: the value of the C handle */
static const char TO_NUMBER[] = "PMPI_Win_toint", OF_NUMBER[] = "PMPI_Win_fromint";
#endif

static MPI_Fint of_host_window(MPI_Win win)
{
	return ((MPI_Fint(*)(MPI_Win))host(TO_NUMBER))(win);
}

static MPI_Win host_window_of(MPI_Fint number)
{
	return ((MPI_Win(*)(MPI_Fint))host(OF_NUMBER))(number);
}

MPI_Fint number_of_window(MPI_Win win)
{
	size_t slot = slot_of(win);

	if (slot < MAX_WINDOWS)
		return (MPI_Fint)(FIRST_NUMBER + slot);
	return host_has_windows ? of_host_window(win) : NUMBER_OF_NULL;
}

MPI_Win window_of_number(MPI_Fint number)
{
	size_t slot = (size_t)number - FIRST_NUMBER;

	if (number >= FIRST_NUMBER && slot < MAX_WINDOWS)
		return handle_of(slot);
	return host_has_windows ? host_window_of(number) : MPI_WIN_NULL;
}

BOTH(MPI_Fint, Win_c2f, (MPI_Win win))
{
	return number_of_window(win);
}

BOTH(MPI_Win, Win_f2c, (MPI_Fint number))
{
	return window_of_number(number);
}

/* The MPI-5 names of these two conversions. */
BOTH(int, Win_toint, (MPI_Win win))
{
	return number_of_window(win);
}

BOTH(MPI_Win, Win_fromint, (int number))
{
	return window_of_number(number);
}
#endif

/*
 * The time slice that a call waits before another thread gets its turn: as long as no other thread uses the
 * window, and once one does.
 */
enum { UNCONTENDED_SLICE_NS = 5000000, CONTENDED_SLICE_NS = 50000 };

/* Sets the first slice if several threads may use the window. */
void window_set_slice(struct window *window)
{
	if (many_threads)
		unisono_mpi_window_set_wait_limit(window->core, UNCONTENDED_SLICE_NS);
}

/* Enters the window. A waiting thread holds `turn`, so a thread that leaves the window and returns at once
 * queues behind it. */
void window_enter(struct window *window)
{
	pthread_mutex_lock(&window->turn);
	bool uncontended = pthread_mutex_trylock(&window->mutex) == 0;

	if (!uncontended)
		pthread_mutex_lock(&window->mutex);
	pthread_mutex_unlock(&window->turn);
	if (!uncontended && !window->contended) {
		window->contended = true;
		unisono_mpi_window_set_wait_limit(window->core, CONTENDED_SLICE_NS);
	}
}

/* Writes the label of a window in the statistics. */
void window_label(const struct window *window, const char *more, char label[WINDOW_LABEL])
{
	const char *flavor = window->flavor == MPI_WIN_FLAVOR_CREATE	 ? "created"
			     : window->flavor == MPI_WIN_FLAVOR_ALLOCATE ? "allocated"
			     : window->flavor == MPI_WIN_FLAVOR_DYNAMIC	 ? "dynamic"
									 : "shared";

	snprintf(label, WINDOW_LABEL, "%s%s%s%s", flavor, window->name[0] ? " " : "", window->name, more);
}

/*
 * Counts windows that were never freed. With `now` it skips a window that another thread is using: a process
 * that aborts must not wait.
 */
void windows_enter_statistics(bool now)
{
	char label[WINDOW_LABEL];

	for (size_t slot = 0; slot < MAX_WINDOWS; slot++) {
		struct window *window = atomic_load(&slots[slot]);

		if (!window || (now && many_threads && pthread_mutex_trylock(&window->mutex)))
			continue;
		window_label(window, ", never freed", label);
		unisono_mpi_window_counted(window->core, label);
		if (now)
			leave(window);
	}
}
