/*
 * Fortran. Fortran bindings convert the arguments and call MPI_X or PMPI_X. The preload defines both, so most
 * calls need no code here. The exceptions are callbacks and attributes, which each host MPI implements in its
 * own way.
 */
#include "shim.h"

#if HOST_OPEN_MPI
/* The names under which compilers and the mpi_f08 module look for a binding. */
#define FORTRAN(type, lower, upper, arguments)                                                               \
	PUBLIC type ompi_##lower##_f arguments;                                                              \
	PUBLIC type mpi_##lower arguments __attribute__((alias("ompi_" #lower "_f")));                       \
	PUBLIC type mpi_##lower##_ arguments __attribute__((alias("ompi_" #lower "_f")));                    \
	PUBLIC type mpi_##lower##__ arguments __attribute__((alias("ompi_" #lower "_f")));                   \
	PUBLIC type pmpi_##lower arguments __attribute__((alias("ompi_" #lower "_f")));                      \
	PUBLIC type pmpi_##lower##_ arguments __attribute__((alias("ompi_" #lower "_f")));                   \
	PUBLIC type pmpi_##lower##__ arguments __attribute__((alias("ompi_" #lower "_f")));                  \
	PUBLIC type MPI_##upper arguments __attribute__((alias("ompi_" #lower "_f")));                       \
	PUBLIC type PMPI_##upper arguments __attribute__((alias("ompi_" #lower "_f")));                      \
	PUBLIC type ompi_##lower##_f arguments

static void set_ierror(MPI_Fint *ierror, int code)
{
	if (ierror)
		*ierror = code;
}

FORTRAN(void, win_create_keyval, WIN_CREATE_KEYVAL,
	(void (*copy)(void), void (*on_delete)(void), MPI_Fint *keyval, MPI_Aint *extra, MPI_Fint *ierror))
{
	(void)copy;
	*keyval = keyval_create(on_delete, (void *)*extra, true);
	set_ierror(ierror, *keyval == MPI_KEYVAL_INVALID ? MPI_ERR_NO_MEM : MPI_SUCCESS);
}

FORTRAN(void, win_set_attr, WIN_SET_ATTR,
	(MPI_Fint * win, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *ierror))
{
	struct window *window = window_of(window_of_number(*win));
	int code;

	if (!window) {
		set_ierror(ierror, no_window("MPI_Win_set_attr"));
		return;
	}
	code = attribute_set(window, *keyval, (void *)*value);
	set_ierror(ierror,
		   code ? window_error(window, "MPI_Win_set_attr", code, "the attribute cannot be set")
			: code);
}

FORTRAN(void, win_get_attr, WIN_GET_ATTR,
	(MPI_Fint * win, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *flag, MPI_Fint *ierror))
{
	struct window *window = window_of(window_of_number(*win));
	void *found;

	if (!window) {
		set_ierror(ierror, no_window("MPI_Win_get_attr"));
		return;
	}
	*flag = attribute_find(window, *keyval, &found);
	if (*flag)
		*value = (MPI_Aint)found;
	set_ierror(ierror, MPI_SUCCESS);
}

FORTRAN(void, win_create_errhandler, WIN_CREATE_ERRHANDLER,
	(void (*function)(void), MPI_Fint *handler, MPI_Fint *ierror))
{
	MPI_Errhandler handle = handler_recorded(function, true);

	*handler = PMPI_Errhandler_c2f(handle);
	set_ierror(ierror, handle == MPI_ERRHANDLER_NULL ? MPI_ERR_NO_MEM : MPI_SUCCESS);
}
#endif

#if HOST_MPICH || HOST_STANDARD
/* Functions that MPICH's bindings call instead of the C functions. In MPICH, Fortran and C handles are
 * both integers, so a Fortran error handler is called like a C one. */
PUBLIC int MPII_Win_get_attr(MPI_Win win, int keyval, void *value, int *flag, int kind);
PUBLIC int MPII_Win_set_attr(MPI_Win win, int keyval, void *value, int kind);
PUBLIC void MPII_Keyval_set_proxy(int keyval, void *copy, void *on_delete);

PUBLIC int MPII_Win_get_attr(MPI_Win win, int keyval, void *value, int *flag, int kind)
{
	struct window *window = window_of(win);
	void *found;

	if (!window && host_has_windows)
		return ((__typeof__(&MPII_Win_get_attr))host("MPII_Win_get_attr"))(win, keyval, value, flag,
										   kind);
	if (!window)
		return no_window("MPI_Win_get_attr");
	/* in MPICH's own ABI, a predefined key's Fortran number is its C number plus one */
	if (HOST_MPICH && keyval > MPI_WIN_BASE && keyval <= MPI_WIN_MODEL + 1 &&
	    (keyval - MPI_WIN_BASE) % 2 == 1)
		keyval -= 1;
	*flag = attribute_find(window, keyval, &found);
	if (*flag)
		*(MPI_Aint *)value = (MPI_Aint)found;
	return MPI_SUCCESS;
}

PUBLIC int MPII_Win_set_attr(MPI_Win win, int keyval, void *value, int kind)
{
	struct window *window = window_of(win);
	int code;

	if (!window && host_has_windows)
		return ((__typeof__(&MPII_Win_set_attr))host("MPII_Win_set_attr"))(win, keyval, value, kind);
	if (!window)
		return no_window("MPI_Win_set_attr");
	code = attribute_set(window, keyval, value);
	return code ? window_error(window, "MPI_Win_set_attr", code, "the attribute cannot be set") : code;
}

PUBLIC void MPII_Keyval_set_proxy(int keyval, void *copy, void *on_delete)
{
	void (*host_set)(int, void *, void *) = (void (*)(int, void *, void *))host("MPII_Keyval_set_proxy");

	if (keyval_is_ours(keyval))
		keyval_is_fortran(keyval);
	else
		host_set(keyval, copy, on_delete);
}
#endif
