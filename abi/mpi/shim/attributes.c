/* Window names, groups, infos and attributes, both predefined and cached. */
#include "shim.h"
#include <stdlib.h>
#include <string.h>

enum { FIRST_KEYVAL = 0x55000000, MAX_KEYVALS = 4096 };

static struct keyval {
	void (*on_delete)(void);
	void *extra;
	bool fortran; /* the callback is a Fortran procedure */
	bool held;    /* the program has not freed the key yet */
	int users;    /* attributes with this key; a slot is free if it is neither held nor used */
} keyvals[MAX_KEYVALS];
/* the search for a free slot continues here, so a freed slot is reused as late as possible (as in
 * handles.c) */
static int next_keyval;
/* protects the keys and every window's attribute list; never held while a callback runs: it may call
 * these functions */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

struct attribute {
	int keyval;
	void *value;
	bool fortran; /* the value is a Fortran integer; C callers get its address */
	bool leaving; /* its delete callback runs; only the thread that runs it unlinks the attribute */
	struct attribute *next;
};

/* Finds the key with a number; NULL if there is none. The caller holds the guard. */
static struct keyval *keyval_of(int number)
{
	struct keyval *keyval;

	if (number < FIRST_KEYVAL || number >= FIRST_KEYVAL + MAX_KEYVALS)
		return NULL;
	keyval = &keyvals[number - FIRST_KEYVAL];
	return keyval->held || keyval->users > 0 ? keyval : NULL;
}

bool keyval_is_ours(int keyval)
{
	bool ours;

	pthread_mutex_lock(&guard);
	ours = keyval_of(keyval) != NULL;
	pthread_mutex_unlock(&guard);
	return ours;
}

int keyval_create(void (*on_delete)(void), void *extra, bool fortran)
{
	int number = MPI_KEYVAL_INVALID;

	pthread_mutex_lock(&guard);
	for (int tried = 0; tried < MAX_KEYVALS && number == MPI_KEYVAL_INVALID; tried++) {
		int slot = next_keyval++ % MAX_KEYVALS;

		next_keyval %= MAX_KEYVALS;
		if (!keyval_of(FIRST_KEYVAL + slot)) {
			number = FIRST_KEYVAL + slot;
			keyvals[slot] = (struct keyval){ on_delete, extra, fortran, true, 0 };
		}
	}
	pthread_mutex_unlock(&guard);
	return number;
}

void keyval_is_fortran(int number)
{
	struct keyval *keyval;

	pthread_mutex_lock(&guard);
	keyval = keyval_of(number);
	if (keyval)
		keyval->fortran = true;
	pthread_mutex_unlock(&guard);
}

static int call_delete(struct window *window, struct keyval keyval, int number, void *value)
{
	if (!keyval.on_delete)
		return MPI_SUCCESS;
	if (keyval.fortran) {
		typedef void function(MPI_Fint *, MPI_Fint *, MPI_Aint *, MPI_Aint *, MPI_Fint *);
		MPI_Fint win = number_of_window(window->handle), key = number, code = MPI_SUCCESS;
		MPI_Aint integer = (MPI_Aint)value;
#if !HOST_OPEN_MPI /* MPICH's binding passes the address of the program's extra state */
		MPI_Aint *extra = keyval.extra;
#else
		MPI_Aint *extra = (MPI_Aint *)&keyval.extra;
#endif

		((function *)keyval.on_delete)(&win, &key, &integer, extra, &code);
		return code;
	}
	return ((MPI_Win_delete_attr_function *)keyval.on_delete)(window->handle, number, value,
								  keyval.extra);
}

/* Finds the newest attribute with this key, even if its callback is running. The caller holds the guard. */
static struct attribute *find(struct window *window, int keyval)
{
	struct attribute *attribute = window->attributes;

	while (attribute && attribute->keyval != keyval)
		attribute = attribute->next;
	return attribute;
}

/*
 * Deletes an attribute unless its callback refuses. The caller holds the guard, which this function releases
 * while the callback runs: the callback may read, set or delete attributes of this window. Deleting the same
 * attribute again from its callback does nothing.
 */
static int drop(struct window *window, struct attribute *attribute)
{
	struct keyval *keyval = keyval_of(attribute->keyval), copy = *keyval;
	struct attribute **at = &window->attributes;
	int code;

	if (attribute->leaving)
		return MPI_SUCCESS;
	attribute->leaving = true;
	pthread_mutex_unlock(&guard);
	code = call_delete(window, copy, attribute->keyval, attribute->value);
	pthread_mutex_lock(&guard);
	attribute->leaving = false;
	if (code)
		return code;
	while (*at != attribute)
		at = &(*at)->next;
	*at = attribute->next;
	keyval->users--;
	free(attribute);
	return MPI_SUCCESS;
}

/*
 * Deletes all attributes of a window that is being freed. Fails if a callback of these attributes refuses, or
 * frees the window.
 */
int attributes_delete(struct window *window)
{
	int code = MPI_SUCCESS;

	pthread_mutex_lock(&guard);
	while (window->attributes && !code)
		code = window->attributes->leaving ? MPI_ERR_OTHER : drop(window, window->attributes);
	pthread_mutex_unlock(&guard);
	return code;
}

static int set(struct window *window, int number, void *value, bool fortran)
{
	struct attribute *attribute = malloc(sizeof *attribute), *old;
	struct keyval *keyval;
	int code = MPI_SUCCESS;

	if (!attribute)
		return MPI_ERR_NO_MEM;
	pthread_mutex_lock(&guard);
	keyval = keyval_of(number);
	if (keyval) {
		/* from here on the key stays valid while callbacks run */
		keyval->users++;
		old = find(window, number);
		code = old ? drop(window, old) : MPI_SUCCESS;
		if (code) {
			keyval->users--;
		} else {
			*attribute = (struct attribute){ number, value, fortran, false, window->attributes };
			window->attributes = attribute;
			attribute = NULL;
		}
	} else {
		code = MPI_ERR_KEYVAL;
	}
	pthread_mutex_unlock(&guard);
	free(attribute);
	return code;
}

/* Sets an attribute for the Fortran bindings. */
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

/* Finds a value for Fortran, which gets integers by value and not by address. */
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
	pthread_mutex_lock(&guard);
	attribute = find(window, keyval);
	if (attribute)
		*value = attribute->value;
	pthread_mutex_unlock(&guard);
	return attribute != NULL;
}

BOTH(int, Win_get_attr, (MPI_Win win, int keyval, void *value, int *flag))
{
	TO_HOST(Win_get_attr, win, (win, keyval, value, flag));
	struct window *window = window_of(win);
	struct attribute *attribute;
	bool integer, known_key;
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
		pthread_mutex_lock(&guard);
		known_key = keyval_of(keyval) != NULL;
		attribute = find(window, keyval);
		*flag = attribute != NULL;
		if (attribute) {
			address = attribute->fortran ? &attribute->value : attribute->value;
			memcpy(value, &address, sizeof address);
		}
		pthread_mutex_unlock(&guard);
		if (!known_key)
			return window_error(window, "MPI_Win_get_attr", MPI_ERR_KEYVAL,
					    "not a key of windows");
	}
	return MPI_SUCCESS;
}

BOTH(int, Win_set_attr, (MPI_Win win, int keyval, void *value))
{
	TO_HOST(Win_set_attr, win, (win, keyval, value));
	struct window *window = window_of(win);
	int code;

	if (!window)
		return no_window("MPI_Win_set_attr");
	code = set(window, keyval, value, false);
	return code ? window_error(window, "MPI_Win_set_attr", code, "the attribute cannot be set") : code;
}

BOTH(int, Win_delete_attr, (MPI_Win win, int keyval))
{
	TO_HOST(Win_delete_attr, win, (win, keyval));
	struct window *window = window_of(win);
	struct attribute *attribute;
	int code;

	if (!window)
		return no_window("MPI_Win_delete_attr");
	pthread_mutex_lock(&guard);
	attribute = find(window, keyval);
	/* MPICH and its relatives delete an attribute that is not set, Open MPI refuses */
	if (attribute)
		code = drop(window, attribute);
	else
		code = keyval_of(keyval) && !HOST_OPEN_MPI ? MPI_SUCCESS : MPI_ERR_KEYVAL;
	pthread_mutex_unlock(&guard);
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
	struct keyval *keyval;
	bool held;

	pthread_mutex_lock(&guard);
	keyval = keyval_of(*number);
	held = keyval && keyval->held;
	if (held)
		keyval->held = false;
	pthread_mutex_unlock(&guard);
	if (!held)
		return comm_error(MPI_COMM_WORLD, "MPI_Win_free_keyval", MPI_ERR_KEYVAL,
				  "not a key of windows");
	*number = MPI_KEYVAL_INVALID;
	return MPI_SUCCESS;
}

BOTH(int, Win_set_name, (MPI_Win win, const char *name))
{
	TO_HOST(Win_set_name, win, (win, name));
	struct window *window = window_of(win);

	if (!window)
		return no_window("MPI_Win_set_name");
	strncpy(window->name, name, sizeof window->name - 1);
	return MPI_SUCCESS;
}

BOTH(int, Win_get_name, (MPI_Win win, char *name, int *length))
{
	TO_HOST(Win_get_name, win, (win, name, length));
	struct window *window = window_of(win);

	if (win == MPI_WIN_NULL) /* has a name since MPI 4.1 */
		return OF_HOST(Win_get_name)(win, name, length);
	if (!window)
		return no_window("MPI_Win_get_name");
	*length = (int)strlen(window->name);
	memcpy(name, window->name, *length + 1);
	return MPI_SUCCESS;
}

BOTH(int, Win_get_group, (MPI_Win win, MPI_Group *group))
{
	TO_HOST(Win_get_group, win, (win, group));
	struct window *window = window_of(win);

	if (!window)
		return no_window("MPI_Win_get_group");
	return PMPI_Group_excl(window->group, 0, NULL, group);
}

BOTH(int, Win_set_info, (MPI_Win win, MPI_Info info))
{
	TO_HOST(Win_set_info, win, (win, info));
	struct window *window = window_of(win);

	if (!window)
		return no_window("MPI_Win_set_info");
	window_info(window, info);
	return MPI_SUCCESS;
}

BOTH(int, Win_get_info, (MPI_Win win, MPI_Info *info))
{
	TO_HOST(Win_get_info, win, (win, info));
	struct window *window = window_of(win);
	int code;

	if (!window)
		return no_window("MPI_Win_get_info");
	code = PMPI_Info_create(info);
	if (code)
		return code;
	PMPI_Info_set(*info, "no_locks", window->no_locks_hint);
	PMPI_Info_set(*info, "unisono_local_completion", window->local_completion ? "true" : "false");
	PMPI_Info_set(*info, "accumulate_ordering", window->accumulate_ordering);
	PMPI_Info_set(*info, "accumulate_ops", window->accumulate_ops);
	if (window->granularity[0])
		PMPI_Info_set(*info, "mpi_accumulate_granularity", window->granularity);
	PMPI_Info_set(*info, "same_size", window->same_size);
	if (window->flavor == MPI_WIN_FLAVOR_SHARED)
		PMPI_Info_set(*info, "alloc_shared_noncontig", window->noncontiguous_hint);
	return PMPI_Info_set(*info, "same_disp_unit", window->same_disp_unit);
}
