/* Names, groups, infos and attributes of windows, predefined and cached. */
#include "shim.h"
#include <stdlib.h>
#include <string.h>

enum { FIRST_KEYVAL = 0x55000000, MOST_KEYVALS = 4096 };

static struct keyval {
	void (*on_delete)(void);
	void *extra;
	bool fortran; /* the callback is Fortran's */
	bool freed;
	int users;
} keyvals[MOST_KEYVALS];
static int keyval_count;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

struct attribute {
	int keyval;
	void *value;
	bool fortran; /* the value is an integer of Fortran's, for which C gets the address */
	struct attribute *next;
};

bool keyval_is_ours(int keyval)
{
	return keyval >= FIRST_KEYVAL && keyval < FIRST_KEYVAL + keyval_count;
}

static struct keyval *keyval_of(int keyval)
{
	return keyval_is_ours(keyval) ? &keyvals[keyval - FIRST_KEYVAL] : NULL;
}

int keyval_create(void (*on_delete)(void), void *extra, bool fortran)
{
	int number = MPI_KEYVAL_INVALID;

	pthread_mutex_lock(&guard);
	if (keyval_count < MOST_KEYVALS) {
		number = FIRST_KEYVAL + keyval_count;
		keyvals[keyval_count++] = (struct keyval){ on_delete, extra, fortran, false, 0 };
	}
	pthread_mutex_unlock(&guard);
	return number;
}

void keyval_is_fortran(int number)
{
	struct keyval *keyval = keyval_of(number);

	if (keyval)
		keyval->fortran = true;
}

static int call_delete(struct window *window, struct attribute *attribute)
{
	struct keyval *keyval = keyval_of(attribute->keyval);

	if (!keyval || !keyval->on_delete)
		return MPI_SUCCESS;
	if (keyval->fortran) {
		typedef void function(MPI_Fint *, MPI_Fint *, MPI_Aint *, MPI_Aint *, MPI_Fint *);
		MPI_Fint win = PMPI_Win_c2f(window->handle), number = attribute->keyval, code = MPI_SUCCESS;
		MPI_Aint value = (MPI_Aint)attribute->value;
#if HOST_MPICH /* whose binding hands on where the program's extra state lies */
		MPI_Aint *extra = keyval->extra;
#else
		MPI_Aint *extra = (MPI_Aint *)&keyval->extra;
#endif

		((function *)keyval->on_delete)(&win, &number, &value, extra, &code);
		return code;
	}
	return ((MPI_Win_delete_attr_function *)keyval->on_delete)(window->handle, attribute->keyval,
								   attribute->value, keyval->extra);
}

static struct attribute **find(struct window *window, int keyval)
{
	struct attribute **at = &window->attributes;

	while (*at && (*at)->keyval != keyval)
		at = &(*at)->next;
	return at;
}

static int drop(struct window *window, struct attribute **at)
{
	struct attribute *attribute = *at;
	int code = call_delete(window, attribute);

	if (code)
		return code;
	/* the callback may have changed the list */
	for (at = &window->attributes; *at && *at != attribute;)
		at = &(*at)->next;
	if (*at)
		*at = attribute->next;
	keyval_of(attribute->keyval)->users--;
	free(attribute);
	return MPI_SUCCESS;
}

int attributes_delete(struct window *window)
{
	int code = MPI_SUCCESS;

	while (window->attributes && !code)
		code = drop(window, &window->attributes);
	return code;
}

static int set(struct window *window, int number, void *value, bool fortran)
{
	struct keyval *keyval = keyval_of(number);
	struct attribute **at, *attribute;
	int code;

	if (!keyval)
		return MPI_ERR_KEYVAL;
	at = find(window, number);
	if (*at) {
		code = call_delete(window, *at);
		if (code)
			return code;
		(*at)->value = value;
		(*at)->fortran = fortran;
		return MPI_SUCCESS;
	}
	attribute = malloc(sizeof *attribute);
	if (!attribute)
		return MPI_ERR_NO_MEM;
	*attribute = (struct attribute){ number, value, fortran, window->attributes };
	window->attributes = attribute;
	keyval->users++;
	return MPI_SUCCESS;
}

/* For Fortran bindings. */
int attribute_set(struct window *window, int keyval, void *value)
{
	return set(window, keyval, value, true);
}

static void *known(struct window *window, int keyval, bool *integer)
{
	*integer = true;
	if (keyval == MPI_WIN_SIZE)
		return &window->bytes;
	if (keyval == MPI_WIN_DISP_UNIT)
		return &window->unit;
	if (keyval == MPI_WIN_CREATE_FLAVOR)
		return &window->flavor;
	if (keyval == MPI_WIN_MODEL)
		return &window->model;
	*integer = false;
	return NULL;
}

/* The value as Fortran sees it: integers themselves, not their addresses. */
bool attribute_find(struct window *window, int keyval, void **value)
{
	bool integer;
	void *address = known(window, keyval, &integer);
	struct attribute *attribute;

	if (keyval == MPI_WIN_BASE) {
		*value = window->base;
		return true;
	}
	if (integer) {
		*value =
			(void *)(keyval == MPI_WIN_SIZE ? *(MPI_Aint *)address : (MPI_Aint) * (int *)address);
		return true;
	}
	attribute = *find(window, keyval);
	if (attribute)
		*value = attribute->value;
	return attribute != NULL;
}

BOTH(int, Win_get_attr, (MPI_Win win, int keyval, void *value, int *flag))
{
	struct window *window = window_of(win);
	struct attribute *attribute;
	bool integer;
	void *address;

	if (!window)
		return no_window("MPI_Win_get_attr");
	address = known(window, keyval, &integer);
	*flag = 1;
	if (keyval == MPI_WIN_BASE) {
		memcpy(value, &window->base, sizeof window->base);
	} else if (integer) {
		memcpy(value, &address, sizeof address);
	} else {
		if (!keyval_of(keyval))
			return window_error(window, "MPI_Win_get_attr", MPI_ERR_KEYVAL,
					    "not a key of windows");
		attribute = *find(window, keyval);
		*flag = attribute != NULL;
		if (attribute) {
			address = attribute->fortran ? &attribute->value : attribute->value;
			memcpy(value, &address, sizeof address);
		}
	}
	return MPI_SUCCESS;
}

BOTH(int, Win_set_attr, (MPI_Win win, int keyval, void *value))
{
	struct window *window = window_of(win);
	int code;

	if (!window)
		return no_window("MPI_Win_set_attr");
	code = set(window, keyval, value, false);
	return code ? window_error(window, "MPI_Win_set_attr", code, "the attribute cannot be set") : code;
}

BOTH(int, Win_delete_attr, (MPI_Win win, int keyval))
{
	struct window *window = window_of(win);
	struct attribute **at;
	int code;

	if (!window)
		return no_window("MPI_Win_delete_attr");
	at = find(window, keyval);
	code = *at ? drop(window, at) : MPI_ERR_KEYVAL;
	return code ? window_error(window, "MPI_Win_delete_attr", code, "the attribute cannot be deleted")
		    : code;
}

BOTH(int, Win_create_keyval,
     (MPI_Win_copy_attr_function * copy, MPI_Win_delete_attr_function *on_delete, int *keyval, void *extra))
{
	(void)copy; /* no call duplicates a window */
	*keyval = keyval_create((void (*)(void))on_delete, extra, false);
	return *keyval == MPI_KEYVAL_INVALID ? comm_error(MPI_COMM_WORLD, "MPI_Win_create_keyval",
							  MPI_ERR_NO_MEM, "too many keys of windows")
					     : MPI_SUCCESS;
}

BOTH(int, Win_free_keyval, (int *number))
{
	struct keyval *keyval = keyval_of(*number);

	if (!keyval || keyval->freed)
		return comm_error(MPI_COMM_WORLD, "MPI_Win_free_keyval", MPI_ERR_KEYVAL,
				  "not a key of windows");
	keyval->freed = true;
	*number = MPI_KEYVAL_INVALID;
	return MPI_SUCCESS;
}

BOTH(int, Win_set_name, (MPI_Win win, const char *name))
{
	struct window *window = window_of(win);

	if (!window)
		return no_window("MPI_Win_set_name");
	strncpy(window->name, name, sizeof window->name - 1);
	return MPI_SUCCESS;
}

BOTH(int, Win_get_name, (MPI_Win win, char *name, int *length))
{
	struct window *window = window_of(win);

	if (!window)
		return no_window("MPI_Win_get_name");
	*length = (int)strlen(window->name);
	memcpy(name, window->name, *length + 1);
	return MPI_SUCCESS;
}

BOTH(int, Win_get_group, (MPI_Win win, MPI_Group *group))
{
	struct window *window = window_of(win);

	if (!window)
		return no_window("MPI_Win_get_group");
	return PMPI_Group_excl(window->group, 0, NULL, group);
}

BOTH(int, Win_set_info, (MPI_Win win, MPI_Info info))
{
	struct window *window = window_of(win);

	if (!window)
		return no_window("MPI_Win_set_info");
	window_info(window, info);
	return MPI_SUCCESS;
}

BOTH(int, Win_get_info, (MPI_Win win, MPI_Info *info))
{
	struct window *window = window_of(win);
	int code;

	if (!window)
		return no_window("MPI_Win_get_info");
	code = PMPI_Info_create(info);
	if (code)
		return code;
	PMPI_Info_set(*info, "no_locks", window->no_locks ? "true" : "false");
	PMPI_Info_set(*info, "unisono_local_completion", window->local_completion ? "true" : "false");
	PMPI_Info_set(*info, "accumulate_ordering", window->accumulate_ordering);
	PMPI_Info_set(*info, "accumulate_ops", window->accumulate_ops);
	PMPI_Info_set(*info, "same_size", window->same_size);
	if (window->flavor == MPI_WIN_FLAVOR_SHARED)
		PMPI_Info_set(*info, "alloc_shared_noncontig", window->noncontiguous ? "true" : "false");
	return PMPI_Info_set(*info, "same_disp_unit", window->same_disp_unit);
}
