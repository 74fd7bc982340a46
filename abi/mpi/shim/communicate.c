/*
 * Communication calls: arguments are checked as far as handles go, the rest is the core's. Each body serves
 * the form with int counts and, where the MPI has it, the one with MPI_Count.
 */
#include "shim.h"

/* The engine's number of a predefined operation; 0 for others, which no accumulate takes. */
static unsigned operation_of(MPI_Op op)
{
	if (op == MPI_SUM)
		return CORE_SUM;
	if (op == MPI_REPLACE)
		return CORE_REPLACE;
	if (op == MPI_NO_OP)
		return CORE_NO_OP;
	if (op == MPI_MIN)
		return CORE_MIN;
	if (op == MPI_MAX)
		return CORE_MAX;
	if (op == MPI_PROD)
		return CORE_PRODUCT;
	if (op == MPI_LAND)
		return CORE_LAND;
	if (op == MPI_LOR)
		return CORE_LOR;
	if (op == MPI_LXOR)
		return CORE_LXOR;
	if (op == MPI_BAND)
		return CORE_BAND;
	if (op == MPI_BOR)
		return CORE_BOR;
	if (op == MPI_BXOR)
		return CORE_BXOR;
	if (op == MPI_MINLOC)
		return CORE_MINLOC;
	if (op == MPI_MAXLOC)
		return CORE_MAXLOC;
	return 0;
}

static int wrong_count(struct window *window, const char *call)
{
	return window_error(window, call, MPI_ERR_COUNT, "a count is negative");
}

static int wrong_type(struct window *window, const char *call)
{
	return window_error(window, call, MPI_ERR_TYPE, "not a datatype that data can have");
}

static int wrong_operation(struct window *window, const char *call)
{
	return window_error(window, call, MPI_ERR_OP, "only predefined operations can be used on windows");
}

/* What every call begins with: the window, the null process, and the types of one pair of sides. */
#define BEGIN(call_name)                                                                                     \
	static const char call[] = call_name;                                                                \
	struct window *window = window_of(win);                                                              \
	int core;                                                                                            \
	(void)call;                                                                                          \
	if (__builtin_expect(!window, 0))                                                                    \
	return no_window(call)

#define TYPE(name, handle, count)                                                                            \
	const struct core_type *name = type_of(handle);                                                      \
	if (__builtin_expect(!name, 0))                                                                      \
		return wrong_type(window, call);                                                             \
	if (__builtin_expect(count < 0, 0))                                                                  \
	return wrong_count(window, call)

#define DO(expression)                                                                                       \
	do {                                                                                                 \
		if (__builtin_expect(rank == MPI_PROC_NULL, 0))                                              \
			return MPI_SUCCESS;                                                                  \
		AT_WINDOW(window, core, expression);                                                         \
		return window_result(window, call, core);                                                    \
	} while (0)

/* The same for a request, which is complete when it is handed out. */
#define REQUEST(expression)                                                                                  \
	do {                                                                                                 \
		core = CORE_OK;                                                                              \
		if (rank != MPI_PROC_NULL)                                                                   \
			AT_WINDOW(window, core, expression);                                                 \
		if (__builtin_expect(core == CORE_UNFINISHED, 0))                                            \
			AT_WINDOW(window, core, core_flush_local(window->core, rank));                       \
		return core ? window_result(window, call, core) : completed(request);                        \
	} while (0)

static int request_status(void *extra, MPI_Status *status)
{
	(void)extra;
	PMPI_Status_set_elements(status, MPI_BYTE, 0);
	PMPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = MPI_UNDEFINED;
	status->MPI_TAG = MPI_UNDEFINED;
	return MPI_SUCCESS;
}

static int request_free(void *extra)
{
	(void)extra;
	return MPI_SUCCESS;
}

static int request_cancel(void *extra, int complete)
{
	(void)extra;
	(void)complete;
	return MPI_SUCCESS;
}

/* A request of the host's, so that it can be waited for together with others. */
static int completed(MPI_Request *request)
{
	int code = PMPI_Grequest_start(request_status, request_free, request_cancel, NULL, request);

	return code ? code : PMPI_Grequest_complete(*request);
}

#define PUT_ARGUMENTS(Count)                                                                                 \
	(const void *origin, Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,         \
	 Count target_count, MPI_Datatype target_type, MPI_Win win)
#define GET_ARGUMENTS(Count)                                                                                 \
	(void *origin, Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,               \
	 Count target_count, MPI_Datatype target_type, MPI_Win win)
#define ACCUMULATE_ARGUMENTS(Count)                                                                          \
	(const void *origin, Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,         \
	 Count target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win)
#define GET_ACCUMULATE_ARGUMENTS(Count)                                                                      \
	(const void *origin, Count origin_count, MPI_Datatype origin_type, void *result, Count result_count, \
	 MPI_Datatype result_type, int rank, MPI_Aint place, Count target_count, MPI_Datatype target_type,   \
	 MPI_Op op, MPI_Win win)
#define RPUT_ARGUMENTS(Count)                                                                                \
	(const void *origin, Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,         \
	 Count target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
#define RGET_ARGUMENTS(Count)                                                                                \
	(void *origin, Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,               \
	 Count target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
#define RACCUMULATE_ARGUMENTS(Count)                                                                         \
	(const void *origin, Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,         \
	 Count target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request *request)
#define RGET_ACCUMULATE_ARGUMENTS(Count)                                                                     \
	(const void *origin, Count origin_count, MPI_Datatype origin_type, void *result, Count result_count, \
	 MPI_Datatype result_type, int rank, MPI_Aint place, Count target_count, MPI_Datatype target_type,   \
	 MPI_Op op, MPI_Win win, MPI_Request *request)

#define SIDES                                                                                                \
	TYPE(from, origin_type, origin_count);                                                               \
	TYPE(to, target_type, target_count)

#define OPERATION                                                                                            \
	unsigned operation = operation_of(op);                                                               \
	if (__builtin_expect(!operation, 0))                                                                 \
	return wrong_operation(window, call)

/* With MPI_NO_OP the origin is ignored, its type as well. */
#define THREE_SIDES                                                                                          \
	OPERATION;                                                                                           \
	TYPE(to, target_type, target_count);                                                                 \
	TYPE(into, result_type, result_count);                                                               \
	const struct core_type *from = operation == CORE_NO_OP ? to : type_of(origin_type);                  \
	if (!from)                                                                                           \
		return wrong_type(window, call);                                                             \
	if (operation == CORE_NO_OP)                                                                         \
		origin_count = target_count;                                                                 \
	else if (origin_count < 0)                                                                           \
	return wrong_count(window, call)

#define CALLS(suffix, Count)                                                                                 \
	BOTH(int, Put##suffix, PUT_ARGUMENTS(Count))                                                         \
	{                                                                                                    \
		BEGIN("MPI_Put" #suffix);                                                                    \
		SIDES;                                                                                       \
		DO(core_put(window->core, origin, origin_count, from, rank, place, target_count, to));       \
	}                                                                                                    \
	BOTH(int, Get##suffix, GET_ARGUMENTS(Count))                                                         \
	{                                                                                                    \
		BEGIN("MPI_Get" #suffix);                                                                    \
		SIDES;                                                                                       \
		DO(core_get(window->core, origin, origin_count, from, rank, place, target_count, to));       \
	}                                                                                                    \
	BOTH(int, Accumulate##suffix, ACCUMULATE_ARGUMENTS(Count))                                           \
	{                                                                                                    \
		BEGIN("MPI_Accumulate" #suffix);                                                             \
		OPERATION;                                                                                   \
		SIDES;                                                                                       \
		DO(core_accumulate(window->core, origin, origin_count, from, rank, place, target_count, to,  \
				   operation));                                                              \
	}                                                                                                    \
	BOTH(int, Get_accumulate##suffix, GET_ACCUMULATE_ARGUMENTS(Count))                                   \
	{                                                                                                    \
		BEGIN("MPI_Get_accumulate" #suffix);                                                         \
		THREE_SIDES;                                                                                 \
		DO(core_get_accumulate(window->core, origin, origin_count, from, result, result_count, into, \
				       rank, place, target_count, to, operation));                           \
	}                                                                                                    \
	BOTH(int, Rput##suffix, RPUT_ARGUMENTS(Count))                                                       \
	{                                                                                                    \
		BEGIN("MPI_Rput" #suffix);                                                                   \
		SIDES;                                                                                       \
		REQUEST(core_rput(window->core, origin, origin_count, from, rank, place, target_count, to)); \
	}                                                                                                    \
	BOTH(int, Rget##suffix, RGET_ARGUMENTS(Count))                                                       \
	{                                                                                                    \
		BEGIN("MPI_Rget" #suffix);                                                                   \
		SIDES;                                                                                       \
		REQUEST(core_rget(window->core, origin, origin_count, from, rank, place, target_count, to)); \
	}                                                                                                    \
	BOTH(int, Raccumulate##suffix, RACCUMULATE_ARGUMENTS(Count))                                         \
	{                                                                                                    \
		BEGIN("MPI_Raccumulate" #suffix);                                                            \
		OPERATION;                                                                                   \
		SIDES;                                                                                       \
		REQUEST(core_raccumulate(window->core, origin, origin_count, from, rank, place,              \
					 target_count, to, operation));                                      \
	}                                                                                                    \
	BOTH(int, Rget_accumulate##suffix, RGET_ACCUMULATE_ARGUMENTS(Count))                                 \
	{                                                                                                    \
		BEGIN("MPI_Rget_accumulate" #suffix);                                                        \
		THREE_SIDES;                                                                                 \
		REQUEST(core_rget_accumulate(window->core, origin, origin_count, from, result, result_count, \
					     into, rank, place, target_count, to, operation));               \
	}

CALLS(, int)
#if MPI_VERSION >= 4
CALLS(_c, MPI_Count)
#endif

BOTH(int, Fetch_and_op,
     (const void *origin, void *result, MPI_Datatype datatype, int rank, MPI_Aint place, MPI_Op op,
      MPI_Win win))
{
	BEGIN("MPI_Fetch_and_op");
	OPERATION;
	TYPE(type, datatype, 1);
	unsigned element = core_type_single(type);
	if (!element)
		return wrong_type(window, call);
	DO(core_fetch_and_op(window->core, origin, result, element, rank, place, operation));
}

BOTH(int, Compare_and_swap,
     (const void *origin, const void *compare, void *result, MPI_Datatype datatype, int rank, MPI_Aint place,
      MPI_Win win))
{
	BEGIN("MPI_Compare_and_swap");
	TYPE(type, datatype, 1);
	unsigned element = core_type_single(type);
	/* integers, logical, multi-language types and bytes (MPI-4.0 section 12.3.4) */
	if (!element || (element >= CORE_F32 && element != CORE_BOOL))
		return wrong_type(window, call);
	DO(core_compare_and_swap(window->core, origin, compare, result, element, rank, place));
}
