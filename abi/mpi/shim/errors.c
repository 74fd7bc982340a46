/*
 * Error handlers of windows. The host MPI does not know Unisono's windows and cannot call their handlers. So
 * the shim records the function of each handler when the handler is created; the handle itself is the host's.
 * A handler that the program has freed lives on while a window uses it.
 */
#include "shim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct handler_record {
	MPI_Errhandler handle;
	void (*function)(void);
	bool fortran;
	int handles; /* handles that the program has not freed */
	int windows;
	struct handler_record *next;
};

static struct handler_record *records;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static int class_of_status(unisono_status status)
{
	switch (status) {
	case UNISONO_STATUS_OK:
		return MPI_SUCCESS;
	case UNISONO_STATUS_ARG:
		return MPI_ERR_ARG;
	case UNISONO_STATUS_ASSERT:
		return MPI_ERR_ASSERT;
	case UNISONO_STATUS_COUNT:
		return MPI_ERR_COUNT;
	case UNISONO_STATUS_DISP:
		return MPI_ERR_DISP;
	case UNISONO_STATUS_NO_MEM:
		return MPI_ERR_NO_MEM;
	case UNISONO_STATUS_OP:
		return MPI_ERR_OP;
	case UNISONO_STATUS_RANK:
		return MPI_ERR_RANK;
	case UNISONO_STATUS_RMA_ATTACH:
		return MPI_ERR_RMA_ATTACH;
	case UNISONO_STATUS_RMA_CONFLICT:
		return MPI_ERR_RMA_CONFLICT;
	case UNISONO_STATUS_RMA_FLAVOR:
		return MPI_ERR_RMA_FLAVOR;
	case UNISONO_STATUS_RMA_RANGE:
		return MPI_ERR_RMA_RANGE;
	case UNISONO_STATUS_RMA_SYNC:
		return MPI_ERR_RMA_SYNC;
	case UNISONO_STATUS_SIZE:
		return MPI_ERR_SIZE;
	case UNISONO_STATUS_TYPE:
		return MPI_ERR_TYPE;
	case UNISONO_STATUS_UNSUPPORTED:
		return MPI_ERR_UNSUPPORTED_OPERATION;
	case UNISONO_STATUS_WIN:
		return MPI_ERR_WIN;
	default:
		return MPI_ERR_OTHER;
	}
}

/*
 * Returns the error code for a rank that is gone. It has an error class of our own, because the standard
 * lacks one, with a code and a text for each rank. The host stores the texts, so that its MPI_Error_string
 * returns them. (MPICH 4.0 forgets the text of a code in a standard class.) Before MPI 4.1 codes cannot be
 * removed, so their number is limited.
 */
static int code_of_gone(const char *words)
{
	enum { MAX_MESSAGES = 64 };
	static struct {
		char words[MPI_MAX_ERROR_STRING];
		int code;
	} messages[MAX_MESSAGES];
	static int class = MPI_ERR_OTHER, count;
	int at = 0, code;

	pthread_mutex_lock(&guard);
	if (class == MPI_ERR_OTHER && !PMPI_Add_error_class(&code)) {
		PMPI_Add_error_string(code, "a rank is gone");
		class = code;
	}
	code = class;
	while (at < count && strncmp(messages[at].words, words, sizeof messages[at].words - 1))
		at++;
	if (at < count) {
		code = messages[at].code;
	} else if (class != MPI_ERR_OTHER && count < MAX_MESSAGES && !PMPI_Add_error_code(class, &code)) {
		snprintf(messages[at].words, sizeof messages[at].words, "%s", words);
		PMPI_Add_error_string(code, messages[at].words);
		messages[count++].code = code;
	}
	pthread_mutex_unlock(&guard);
	return code;
}

int code_of_status(unisono_status status)
{
	return status == UNISONO_STATUS_GONE ? code_of_gone(unisono_error_text()) : class_of_status(status);
}

/* Prints the program's last message: the caller ends the program next. */
static void print_error(const char *call, int code, const char *words)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length, rank = -1, class = code;

	PMPI_Error_class(code, &class);
	PMPI_Error_string(class, text, &length);
	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	fprintf(stderr, "unisono: rank %d: %s: %s (%s)\n", rank, call, words, text);
	await_launcher();
}

int window_error(struct window *window, const char *call, int code, const char *words)
{
	struct handler_record *record = window->handler.record;

	if (record) {
#if HOST_OPEN_MPI
		if (record->fortran) {
			MPI_Fint number = number_of_window(window->handle), given = code;
			((void (*)(MPI_Fint *, MPI_Fint *))record->function)(&number, &given);
			return code;
		}
#endif
		MPI_Win handle = window->handle;
		int given = code;
		((MPI_Win_errhandler_function *)record->function)(&handle, &given);
	} else if (window->handler.handle != MPI_ERRORS_RETURN) {
		int class = code;

		print_error(call, code, words);
		PMPI_Error_class(code, &class);
		MPI_Abort(MPI_COMM_WORLD, class);
	}
	return code;
}

/* Calls the communicator's handler, for errors that concern no window. */
int comm_error(MPI_Comm comm, const char *call, int code, const char *words)
{
	MPI_Errhandler handler;

	if (!PMPI_Comm_get_errhandler(comm, &handler)) {
		if (handler == MPI_ERRORS_ARE_FATAL)
			print_error(call, code, words);
		MPI_Errhandler_free(&handler);
	}
	PMPI_Comm_call_errhandler(comm, code);
	return code;
}

int no_window(const char *call)
{
	return comm_error(MPI_COMM_WORLD, call, MPI_ERR_WIN, "no such window; was it freed?");
}

static struct handler_record *record_of(MPI_Errhandler handle)
{
	struct handler_record *record = records;

	while (record && record->handle != handle)
		record = record->next;
	return record;
}

/* Frees a record that neither the program nor a window uses any more. */
static void release_record(struct handler_record *record)
{
	int (*host_free)(MPI_Errhandler *) = (int (*)(MPI_Errhandler *))host("PMPI_Errhandler_free");

	if (record->handles > 0 || record->windows > 0)
		return;
	for (struct handler_record **at = &records; *at; at = &(*at)->next)
		if (*at == record) {
			*at = record->next;
			break;
		}
	host_free(&record->handle);
	free(record);
}

static int record_new(MPI_Errhandler handle, void (*function)(void), bool fortran)
{
	struct handler_record *record = calloc(1, sizeof *record);

	if (!record)
		return MPI_ERR_NO_MEM;
	record->handle = handle;
	record->function = function;
	record->fortran = fortran;
	record->handles = 1;
	pthread_mutex_lock(&guard);
	record->next = records;
	records = record;
	pthread_mutex_unlock(&guard);
	return MPI_SUCCESS;
}

static int create_handler(void (*function)(void), bool fortran, MPI_Errhandler *handle)
{
	int (*host_create)(MPI_Win_errhandler_function *, MPI_Errhandler *) =
		(int (*)(MPI_Win_errhandler_function *, MPI_Errhandler *))host("PMPI_Win_create_errhandler");
	int code = host_create((MPI_Win_errhandler_function *)function, handle);

	return code ? code : record_new(*handle, function, fortran);
}

BOTH(int, Win_create_errhandler, (MPI_Win_errhandler_function * function, MPI_Errhandler *handle))
{
	return create_handler((void (*)(void))function, false, handle);
}

/* Records a handler for Fortran bindings that do not go through the C function. */
MPI_Errhandler handler_recorded(void (*function)(void), bool fortran)
{
	MPI_Errhandler handle;

	return create_handler(function, fortran, &handle) ? MPI_ERRHANDLER_NULL : handle;
}

void handler_default(struct handler *handler)
{
	handler->handle = MPI_ERRORS_ARE_FATAL;
	handler->record = NULL;
}

void handler_drop(struct handler *handler)
{
	pthread_mutex_lock(&guard);
	if (handler->record) {
		handler->record->windows--;
		release_record(handler->record);
	}
	pthread_mutex_unlock(&guard);
	handler_default(handler);
}

static bool predefined(MPI_Errhandler handle)
{
#ifdef MPI_ERRORS_ABORT
	if (handle == MPI_ERRORS_ABORT)
		return true;
#endif
	return handle == MPI_ERRORS_ARE_FATAL || handle == MPI_ERRORS_RETURN;
}

BOTH(int, Win_set_errhandler, (MPI_Win win, MPI_Errhandler handle))
{
	TO_HOST(Win_set_errhandler, win, (win, handle));
	struct window *window = window_of(win);
	struct handler_record *record;

	if (!window)
		return no_window("MPI_Win_set_errhandler");
	pthread_mutex_lock(&guard);
	record = record_of(handle);
	if (record)
		record->windows++;
	pthread_mutex_unlock(&guard);
	if (!record && !predefined(handle))
		return window_error(window, "MPI_Win_set_errhandler", MPI_ERR_ARG,
				    "not an error handler made for windows");
	handler_drop(&window->handler);
	window->handler.handle = handle;
	window->handler.record = record;
	return MPI_SUCCESS;
}

BOTH(int, Win_get_errhandler, (MPI_Win win, MPI_Errhandler *handle))
{
	TO_HOST(Win_get_errhandler, win, (win, handle));
	struct window *window = window_of(win);

	if (!window)
		return no_window("MPI_Win_get_errhandler");
	*handle = window->handler.handle;
	pthread_mutex_lock(&guard);
	if (window->handler.record)
		window->handler.record->handles++;
	pthread_mutex_unlock(&guard);
	return MPI_SUCCESS;
}

BOTH(int, Win_call_errhandler, (MPI_Win win, int code))
{
	TO_HOST(Win_call_errhandler, win, (win, code));
	struct window *window = window_of(win);

	if (!window)
		return no_window("MPI_Win_call_errhandler");
	window_error(window, "MPI_Win_call_errhandler", code, "called by the program");
	return MPI_SUCCESS;
}

BOTH(int, Errhandler_free, (MPI_Errhandler * handle))
{
	struct handler_record *record;
	int (*host_free)(MPI_Errhandler *) = (int (*)(MPI_Errhandler *))host("PMPI_Errhandler_free");

	/* a handle returned by MPI_Win_get_errhandler has no reference in the host */
	if (predefined(*handle)) {
		*handle = MPI_ERRHANDLER_NULL;
		return MPI_SUCCESS;
	}
	pthread_mutex_lock(&guard);
	record = record_of(*handle);
	if (record) {
		record->handles--;
		release_record(record);
	}
	pthread_mutex_unlock(&guard);
	if (!record)
		return host_free(handle);
	*handle = MPI_ERRHANDLER_NULL;
	return MPI_SUCCESS;
}
