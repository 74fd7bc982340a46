/*
 * Communication calls. The shim checks handles and counts; the library checks the other arguments. Each body
 * serves the forms with int counts and, if the MPI has them, with MPI_Count, each with and without a request.
 */
#include "shim.h"

/* Returns the engine's number of a predefined operation; 0 for other operations, which no accumulate
 * accepts. */
static inline int operation_of(MPI_Op op)
{
	if (op == MPI_SUM)
		return UNISONO_OPERATION_SUM;
	if (op == MPI_REPLACE)
		return UNISONO_OPERATION_REPLACE;
	if (op == MPI_NO_OP)
		return UNISONO_OPERATION_NO_OP;
	if (op == MPI_MIN)
		return UNISONO_OPERATION_MIN;
	if (op == MPI_MAX)
		return UNISONO_OPERATION_MAX;
	if (op == MPI_PROD)
		return UNISONO_OPERATION_PRODUCT;
	if (op == MPI_LAND)
		return UNISONO_OPERATION_LOGICAL_AND;
	if (op == MPI_LOR)
		return UNISONO_OPERATION_LOGICAL_OR;
	if (op == MPI_LXOR)
		return UNISONO_OPERATION_LOGICAL_XOR;
	if (op == MPI_BAND)
		return UNISONO_OPERATION_BIT_AND;
	if (op == MPI_BOR)
		return UNISONO_OPERATION_BIT_OR;
	if (op == MPI_BXOR)
		return UNISONO_OPERATION_BIT_XOR;
	if (op == MPI_MINLOC)
		return UNISONO_OPERATION_MIN_LOC;
	if (op == MPI_MAXLOC)
		return UNISONO_OPERATION_MAX_LOC;
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

/* Whether a transfer moves data, or combines the elements of both sides. */
enum purpose { MOVES, COMBINES };

/* Finds the layout of one side of a transfer; returns the error code for the caller if that fails. */
INLINE int side(struct window *window, const char *call, enum purpose purpose, MPI_Count count,
		MPI_Datatype handle, const unisono_layout **layout)
{
	const struct type *type = type_of(handle);

	if (UNLIKELY(!type))
		return wrong_type(window, call);
	*layout = purpose == MOVES ? type->moved : type->layout;
	return UNLIKELY(count < 0) ? wrong_count(window, call) : MPI_SUCCESS;
}

/*
 * Ends an operation. Operations of windows that work by messages go on while the program computes. All other
 * operations with a request are complete at the origin before the program gets the request, because this
 * rank's processor carries the data.
 */
INLINE int finish(struct window *window, const char *call, unisono_status status, int rank,
		  MPI_Request *request, unisono_request *core)
{
	if (!request)
		return window_result(window, call, status);
	if (LIKELY(!status) && core)
		return operation_begun(window, core, rank, request);
	if (LIKELY(!status))
		do {
			enter(window);
			status = unisono_window_flush_local(window->core, rank);
		} while (leave_to_repeat(window, status));
	return UNLIKELY(status) ? window_result(window, call, status) : operation_completed(request);
}

/* Ends a transfer with MPI_PROC_NULL, which does nothing. */
INLINE int nothing(MPI_Request *request)
{
	return request ? operation_completed(request) : MPI_SUCCESS;
}

/* A transfer with checked arguments: the layouts of its two sides. */
struct transfer {
	struct window *window;
	const unisono_layout *near, *far;
};

enum { GO_ON = -1 }; /* error codes are never negative */

/* Checks the arguments of a transfer. A result other than GO_ON is the return value of the call. Usually
 * both sides have the same type. */
INLINE int check(const char *call, enum purpose purpose, MPI_Win win, MPI_Count origin_count,
		 MPI_Datatype origin_type, int rank, MPI_Count target_count, MPI_Datatype target_type,
		 int operation, MPI_Request *request, struct transfer *of)
{
	struct window *window = of->window = window_of(win);
	int code;

	if (UNLIKELY(!window))
		return no_window(call);
	if (UNLIKELY(!operation))
		return wrong_operation(window, call);
	code = side(window, call, purpose, origin_count, origin_type, &of->near);
	if (UNLIKELY(code))
		return code;
	of->far = of->near;
	if (UNLIKELY(target_type != origin_type))
		code = side(window, call, purpose, target_count, target_type, &of->far);
	else if (UNLIKELY(target_count < 0))
		code = wrong_count(window, call);
	if (UNLIKELY(code))
		return code;
	return UNLIKELY(rank == MPI_PROC_NULL) ? nothing(request) : GO_ON;
}

INLINE int put(const char *call, const void *origin, MPI_Count origin_count, MPI_Datatype origin_type,
	       int rank, MPI_Aint place, MPI_Count target_count, MPI_Datatype target_type, MPI_Win win,
	       MPI_Request *request)
{
	struct transfer of;
	unisono_status status;
	int code = check(call, MOVES, win, origin_count, origin_type, rank, target_count, target_type,
			 UNISONO_OPERATION_REPLACE, request, &of);

	if (UNLIKELY(code != GO_ON))
		return code;
	unisono_request *core = NULL, **later = of.window->by_messages ? &core : NULL;

	do {
		enter(of.window);
		status = request ? unisono_rput(of.window->core, origin, origin_count, of.near, rank, place,
						target_count, of.far, later)
				 : unisono_put(of.window->core, origin, origin_count, of.near, rank, place,
					       target_count, of.far);
	} while (leave_to_repeat(of.window, status));
	return finish(of.window, call, status, rank, request, core);
}

INLINE int get(const char *call, void *origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank,
	       MPI_Aint place, MPI_Count target_count, MPI_Datatype target_type, MPI_Win win,
	       MPI_Request *request)
{
	struct transfer of;
	unisono_status status;
	int code = check(call, MOVES, win, origin_count, origin_type, rank, target_count, target_type,
			 UNISONO_OPERATION_NO_OP, request, &of);

	if (UNLIKELY(code != GO_ON))
		return code;
	unisono_request *core = NULL, **later = of.window->by_messages ? &core : NULL;

	do {
		enter(of.window);
		status = request ? unisono_rget(of.window->core, origin, origin_count, of.near, rank, place,
						target_count, of.far, later)
				 : unisono_get(of.window->core, origin, origin_count, of.near, rank, place,
					       target_count, of.far);
	} while (leave_to_repeat(of.window, status));
	return finish(of.window, call, status, rank, request, core);
}

INLINE int accumulate(const char *call, const void *origin, MPI_Count origin_count, MPI_Datatype origin_type,
		      int rank, MPI_Aint place, MPI_Count target_count, MPI_Datatype target_type, MPI_Op op,
		      MPI_Win win, MPI_Request *request)
{
	struct transfer of;
	unisono_status status;
	int operation = operation_of(op);
	int code = check(call, COMBINES, win, origin_count, origin_type, rank, target_count, target_type,
			 operation, request, &of);

	if (UNLIKELY(code != GO_ON))
		return code;
	unisono_request *core = NULL, **later = of.window->by_messages ? &core : NULL;

	do {
		enter(of.window);
		status = request ? unisono_raccumulate(of.window->core, origin, origin_count, of.near, rank,
						       place, target_count, of.far, operation, later)
				 : unisono_accumulate(of.window->core, origin, origin_count, of.near, rank,
						      place, target_count, of.far, operation);
	} while (leave_to_repeat(of.window, status));
	return finish(of.window, call, status, rank, request, core);
}

/* Serves get-accumulate. With MPI_NO_OP the origin buffer and its type are ignored. */
INLINE int get_accumulate(const char *call, const void *origin, MPI_Count origin_count,
			  MPI_Datatype origin_type, void *result, MPI_Count result_count,
			  MPI_Datatype result_type, int rank, MPI_Aint place, MPI_Count target_count,
			  MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request *request)
{
	struct window *window = window_of(win);
	const unisono_layout *near = NULL, *into, *far;
	unisono_status status;
	int code, operation = operation_of(op);

	if (UNLIKELY(!window))
		return no_window(call);
	if (UNLIKELY(!operation))
		return wrong_operation(window, call);
	code = side(window, call, COMBINES, target_count, target_type, &far);
	if (LIKELY(!code))
		code = side(window, call, COMBINES, result_count, result_type, &into);
	if (LIKELY(!code) && operation != UNISONO_OPERATION_NO_OP)
		code = side(window, call, COMBINES, origin_count, origin_type, &near);
	if (UNLIKELY(code))
		return code;
	if (UNLIKELY(rank == MPI_PROC_NULL))
		return nothing(request);
	unisono_request *core = NULL, **later = window->by_messages ? &core : NULL;

	do {
		enter(window);
		status = request ? unisono_rget_accumulate(window->core, origin, origin_count, near, result,
							   result_count, into, rank, place, target_count, far,
							   operation, later)
				 : unisono_get_accumulate(window->core, origin, origin_count, near, result,
							  result_count, into, rank, place, target_count, far,
							  operation);
	} while (leave_to_repeat(window, status));
	return finish(window, call, status, rank, request, core);
}

BOTH(int, Put,
     (const void *origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,
      int target_count, MPI_Datatype target_type, MPI_Win win))
{
	TO_HOST(Put, win, (origin, origin_count, origin_type, rank, place, target_count, target_type, win));
	return put("MPI_Put", origin, origin_count, origin_type, rank, place, target_count, target_type, win,
		   NULL);
}

BOTH(int, Get,
     (void *origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place, int target_count,
      MPI_Datatype target_type, MPI_Win win))
{
	TO_HOST(Get, win, (origin, origin_count, origin_type, rank, place, target_count, target_type, win));
	return get("MPI_Get", origin, origin_count, origin_type, rank, place, target_count, target_type, win,
		   NULL);
}

BOTH(int, Accumulate,
     (const void *origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,
      int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win))
{
	TO_HOST(Accumulate, win,
		(origin, origin_count, origin_type, rank, place, target_count, target_type, op, win));
	return accumulate("MPI_Accumulate", origin, origin_count, origin_type, rank, place, target_count,
			  target_type, op, win, NULL);
}

BOTH(int, Get_accumulate,
     (const void *origin, int origin_count, MPI_Datatype origin_type, void *result, int result_count,
      MPI_Datatype result_type, int rank, MPI_Aint place, int target_count, MPI_Datatype target_type,
      MPI_Op op, MPI_Win win))
{
	TO_HOST(Get_accumulate, win,
		(origin, origin_count, origin_type, result, result_count, result_type, rank, place,
		 target_count, target_type, op, win));
	return get_accumulate("MPI_Get_accumulate", origin, origin_count, origin_type, result, result_count,
			      result_type, rank, place, target_count, target_type, op, win, NULL);
}

BOTH(int, Rput,
     (const void *origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,
      int target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request *request))
{
	TO_HOST(Rput, win,
		(origin, origin_count, origin_type, rank, place, target_count, target_type, win, request));
	return put("MPI_Rput", origin, origin_count, origin_type, rank, place, target_count, target_type, win,
		   request);
}

BOTH(int, Rget,
     (void *origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place, int target_count,
      MPI_Datatype target_type, MPI_Win win, MPI_Request *request))
{
	TO_HOST(Rget, win,
		(origin, origin_count, origin_type, rank, place, target_count, target_type, win, request));
	return get("MPI_Rget", origin, origin_count, origin_type, rank, place, target_count, target_type, win,
		   request);
}

BOTH(int, Raccumulate,
     (const void *origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,
      int target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request *request))
{
	TO_HOST(Raccumulate, win,
		(origin, origin_count, origin_type, rank, place, target_count, target_type, op, win,
		 request));
	return accumulate("MPI_Raccumulate", origin, origin_count, origin_type, rank, place, target_count,
			  target_type, op, win, request);
}

BOTH(int, Rget_accumulate,
     (const void *origin, int origin_count, MPI_Datatype origin_type, void *result, int result_count,
      MPI_Datatype result_type, int rank, MPI_Aint place, int target_count, MPI_Datatype target_type,
      MPI_Op op, MPI_Win win, MPI_Request *request))
{
	TO_HOST(Rget_accumulate, win,
		(origin, origin_count, origin_type, result, result_count, result_type, rank, place,
		 target_count, target_type, op, win, request));
	return get_accumulate("MPI_Rget_accumulate", origin, origin_count, origin_type, result, result_count,
			      result_type, rank, place, target_count, target_type, op, win, request);
}

#if MPI_VERSION >= 4
BOTH(int, Put_c,
     (const void *origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,
      MPI_Count target_count, MPI_Datatype target_type, MPI_Win win))
{
	TO_HOST(Put_c, win, (origin, origin_count, origin_type, rank, place, target_count, target_type, win));
	return put("MPI_Put_c", origin, origin_count, origin_type, rank, place, target_count, target_type,
		   win, NULL);
}

BOTH(int, Get_c,
     (void *origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,
      MPI_Count target_count, MPI_Datatype target_type, MPI_Win win))
{
	TO_HOST(Get_c, win, (origin, origin_count, origin_type, rank, place, target_count, target_type, win));
	return get("MPI_Get_c", origin, origin_count, origin_type, rank, place, target_count, target_type,
		   win, NULL);
}

BOTH(int, Accumulate_c,
     (const void *origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,
      MPI_Count target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win))
{
	TO_HOST(Accumulate_c, win,
		(origin, origin_count, origin_type, rank, place, target_count, target_type, op, win));
	return accumulate("MPI_Accumulate_c", origin, origin_count, origin_type, rank, place, target_count,
			  target_type, op, win, NULL);
}

BOTH(int, Get_accumulate_c,
     (const void *origin, MPI_Count origin_count, MPI_Datatype origin_type, void *result,
      MPI_Count result_count, MPI_Datatype result_type, int rank, MPI_Aint place, MPI_Count target_count,
      MPI_Datatype target_type, MPI_Op op, MPI_Win win))
{
	TO_HOST(Get_accumulate_c, win,
		(origin, origin_count, origin_type, result, result_count, result_type, rank, place,
		 target_count, target_type, op, win));
	return get_accumulate("MPI_Get_accumulate_c", origin, origin_count, origin_type, result, result_count,
			      result_type, rank, place, target_count, target_type, op, win, NULL);
}

BOTH(int, Rput_c,
     (const void *origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,
      MPI_Count target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request *request))
{
	TO_HOST(Rput_c, win,
		(origin, origin_count, origin_type, rank, place, target_count, target_type, win, request));
	return put("MPI_Rput_c", origin, origin_count, origin_type, rank, place, target_count, target_type,
		   win, request);
}

BOTH(int, Rget_c,
     (void *origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,
      MPI_Count target_count, MPI_Datatype target_type, MPI_Win win, MPI_Request *request))
{
	TO_HOST(Rget_c, win,
		(origin, origin_count, origin_type, rank, place, target_count, target_type, win, request));
	return get("MPI_Rget_c", origin, origin_count, origin_type, rank, place, target_count, target_type,
		   win, request);
}

BOTH(int, Raccumulate_c,
     (const void *origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,
      MPI_Count target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request *request))
{
	TO_HOST(Raccumulate_c, win,
		(origin, origin_count, origin_type, rank, place, target_count, target_type, op, win,
		 request));
	return accumulate("MPI_Raccumulate_c", origin, origin_count, origin_type, rank, place, target_count,
			  target_type, op, win, request);
}

BOTH(int, Rget_accumulate_c,
     (const void *origin, MPI_Count origin_count, MPI_Datatype origin_type, void *result,
      MPI_Count result_count, MPI_Datatype result_type, int rank, MPI_Aint place, MPI_Count target_count,
      MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request *request))
{
	TO_HOST(Rget_accumulate_c, win,
		(origin, origin_count, origin_type, result, result_count, result_type, rank, place,
		 target_count, target_type, op, win, request));
	return get_accumulate("MPI_Rget_accumulate_c", origin, origin_count, origin_type, result,
			      result_count, result_type, rank, place, target_count, target_type, op, win,
			      request);
}
#endif

BOTH(int, Fetch_and_op,
     (const void *origin, void *result, MPI_Datatype datatype, int rank, MPI_Aint place, MPI_Op op,
      MPI_Win win))
{
	TO_HOST(Fetch_and_op, win, (origin, result, datatype, rank, place, op, win));
	static const char call[] = "MPI_Fetch_and_op";
	struct window *window = window_of(win);
	const unisono_layout *layout;
	unisono_status status;
	int element, operation = operation_of(op);

	if (UNLIKELY(!window))
		return no_window(call);
	if (UNLIKELY(!operation))
		return wrong_operation(window, call);
	layout = layout_of(datatype);
	element = LIKELY(layout) ? unisono_mpi_layout_single(layout) : 0;
	if (UNLIKELY(!element))
		return wrong_type(window, call);
	if (UNLIKELY(rank == MPI_PROC_NULL))
		return MPI_SUCCESS;
	do {
		enter(window);
		status = unisono_fetch_and_op(window->core, origin, result, element, rank, place, operation);
	} while (leave_to_repeat(window, status));
	return window_result(window, call, status);
}

BOTH(int, Compare_and_swap,
     (const void *origin, const void *compare, void *result, MPI_Datatype datatype, int rank, MPI_Aint place,
      MPI_Win win))
{
	TO_HOST(Compare_and_swap, win, (origin, compare, result, datatype, rank, place, win));
	static const char call[] = "MPI_Compare_and_swap";
	struct window *window = window_of(win);
	const unisono_layout *layout;
	unisono_status status;
	int element;

	if (UNLIKELY(!window))
		return no_window(call);
	layout = layout_of(datatype);
	element = LIKELY(layout) ? unisono_mpi_layout_single(layout) : 0;
	/* integers, logical, multi-language types and bytes (MPI-4.0 section 12.3.4) */
	if (UNLIKELY(!element || (element >= UNISONO_ELEMENT_F32 && element != UNISONO_ELEMENT_BOOL)))
		return wrong_type(window, call);
	if (UNLIKELY(rank == MPI_PROC_NULL))
		return MPI_SUCCESS;
	do {
		enter(window);
		status =
			unisono_compare_and_swap(window->core, origin, compare, result, element, rank, place);
	} while (leave_to_repeat(window, status));
	return window_result(window, call, status);
}
