/* The hints of an MPI_Info: the standard's and Unisono's own. */
#include "shim.h"
#include <stdio.h>
#include <string.h>

static bool get_hint(MPI_Info info, const char *key, char *value, size_t bytes)
{
	char text[MPI_MAX_INFO_VAL + 1];
	int found = 0;

	if (info == MPI_INFO_NULL || PMPI_Info_get(info, key, MPI_MAX_INFO_VAL, text, &found) || !found)
		return false;
	snprintf(value, bytes, "%.*s", (int)bytes - 1, text);
	return true;
}

bool hint_is_true(MPI_Info info, const char *key, bool otherwise)
{
	char value[8];

	return get_hint(info, key, value, sizeof value) ? strcmp(value, "true") == 0 : otherwise;
}

static void store_hint(MPI_Info info, const char *key, char *value, size_t bytes)
{
	char given[8];

	if (get_hint(info, key, given, sizeof given) &&
	    (strcmp(given, "true") == 0 || strcmp(given, "false") == 0))
		snprintf(value, bytes, "%s", given);
}

/*
 * Reads the standard's hints and our own; unknown hints are ignored, as the standard demands. no_locks and
 * alloc_shared_noncontig take effect only when the window is made. A later value is stored for
 * MPI_Win_get_info, but a window made without locks stays without.
 */
void window_info(struct window *window, MPI_Info info)
{
	store_hint(info, "no_locks", window->no_locks_hint, sizeof window->no_locks_hint);
	if (window->flavor == MPI_WIN_FLAVOR_SHARED)
		store_hint(info, "alloc_shared_noncontig", window->noncontiguous_hint,
			   sizeof window->noncontiguous_hint);
	get_hint(info, "accumulate_ordering", window->accumulate_ordering,
		 sizeof window->accumulate_ordering);
	get_hint(info, "accumulate_ops", window->accumulate_ops, sizeof window->accumulate_ops);
	get_hint(info, "mpi_accumulate_granularity", window->granularity, sizeof window->granularity);
	get_hint(info, "same_size", window->same_size, sizeof window->same_size);
	get_hint(info, "same_disp_unit", window->same_disp_unit, sizeof window->same_disp_unit);
}
