/*
 * The ABI of Open MPI 3 to 5 (libmpi.so.40): a handle is the address of a data object in that library. The
 * bridge is not linked to the library and looks up each address at run time, so each predefined handle is a
 * variable here. This header declares the part that the shim uses. A test compares each value with the mpi.h
 * of every installed MPI of this ABI.
 */
#ifndef UNISONO_OPEN_MPI_ABI_H
#define UNISONO_OPEN_MPI_ABI_H

#include <stddef.h>
#define OPEN_MPI 1
#define MPI_VERSION 4 /* large counts and sessions are used where the library has them */

typedef struct openmpi_comm *MPI_Comm;
typedef struct openmpi_win *MPI_Win;
typedef struct openmpi_group *MPI_Group;
typedef struct openmpi_info *MPI_Info;
typedef struct openmpi_datatype *MPI_Datatype;
typedef struct openmpi_op *MPI_Op;
typedef struct openmpi_request *MPI_Request;
typedef struct openmpi_message *MPI_Message;
typedef struct openmpi_errhandler *MPI_Errhandler;
typedef struct openmpi_session *MPI_Session;
typedef struct openmpi_file *MPI_File;
typedef ptrdiff_t MPI_Aint;
typedef long long MPI_Count;
typedef long long MPI_Offset;
typedef int MPI_Fint;

typedef struct {
	int MPI_SOURCE, MPI_TAG, MPI_ERROR;
	int cancelled;
	size_t count;
} MPI_Status;

/* errors */
enum {
	MPI_SUCCESS = 0,
	MPI_ERR_BUFFER = 1,
	MPI_ERR_COUNT = 2,
	MPI_ERR_TYPE = 3,
	MPI_ERR_TAG = 4,
	MPI_ERR_COMM = 5,
	MPI_ERR_RANK = 6,
	MPI_ERR_REQUEST = 7,
	MPI_ERR_ROOT = 8,
	MPI_ERR_GROUP = 9,
	MPI_ERR_OP = 10,
	MPI_ERR_ARG = 13,
	MPI_ERR_TRUNCATE = 15,
	MPI_ERR_OTHER = 16,
	MPI_ERR_INTERN = 17,
	MPI_ERR_IN_STATUS = 18,
	MPI_ERR_PENDING = 19,
	MPI_ERR_ASSERT = 22,
	MPI_ERR_DISP = 26,
	MPI_ERR_KEYVAL = 36,
	MPI_ERR_LOCKTYPE = 37,
	MPI_ERR_NO_MEM = 39,
	MPI_ERR_SIZE = 49,
	MPI_ERR_UNSUPPORTED_OPERATION = 52,
	MPI_ERR_WIN = 53,
	MPI_ERR_RMA_ATTACH = 69,
	MPI_ERR_RMA_CONFLICT = 46,
	MPI_ERR_RMA_FLAVOR = 70,
	MPI_ERR_RMA_RANGE = 68,
	MPI_ERR_RMA_SHARED = 71,
	MPI_ERR_RMA_SYNC = 47,
};

/* ranks, tags, and null values */
enum {
	MPI_ANY_SOURCE = -1,
	MPI_ANY_TAG = -1,
	MPI_PROC_NULL = -2,
	MPI_ROOT = -4,
	MPI_UNDEFINED = -32766,
	MPI_KEYVAL_INVALID = -1,
};

/* options */
enum {
	MPI_COMM_TYPE_SHARED = 0,
	MPI_ORDER_FORTRAN = 1,
	MPI_THREAD_SINGLE = 0,
	MPI_THREAD_FUNNELED = 1,
	MPI_THREAD_SERIALIZED = 2,
	MPI_THREAD_MULTIPLE = 3,
};

/* lengths of strings */
enum {
	MPI_MAX_ERROR_STRING = 256,
	MPI_MAX_INFO_VAL = 256,
	MPI_MAX_OBJECT_NAME = 64,
	MPI_MAX_LIBRARY_VERSION_STRING = 256,
};

/* windows */
enum {
	MPI_LOCK_EXCLUSIVE = 1,
	MPI_LOCK_SHARED = 2,
	MPI_MODE_NOCHECK = 1,
	MPI_MODE_NOSTORE = 8,
	MPI_MODE_NOPUT = 4,
	MPI_MODE_NOPRECEDE = 2,
	MPI_MODE_NOSUCCEED = 16,
	MPI_WIN_BASE = 7,
	MPI_WIN_SIZE = 8,
	MPI_WIN_DISP_UNIT = 9,
	MPI_WIN_CREATE_FLAVOR = 10,
	MPI_WIN_MODEL = 11,
	MPI_WIN_FLAVOR_CREATE = 1,
	MPI_WIN_FLAVOR_ALLOCATE = 2,
	MPI_WIN_FLAVOR_DYNAMIC = 3,
	MPI_WIN_FLAVOR_SHARED = 4,
	MPI_WIN_UNIFIED = 0,
};

/* combiners: the constructors of datatypes */
enum {
	MPI_COMBINER_NAMED = 0,
	MPI_COMBINER_DUP = 1,
	MPI_COMBINER_CONTIGUOUS = 2,
	MPI_COMBINER_VECTOR = 3,
	MPI_COMBINER_HVECTOR = 5,
	MPI_COMBINER_INDEXED = 6,
	MPI_COMBINER_HINDEXED = 8,
	MPI_COMBINER_INDEXED_BLOCK = 9,
	MPI_COMBINER_HINDEXED_BLOCK = 18,
	MPI_COMBINER_STRUCT = 11,
	MPI_COMBINER_SUBARRAY = 12,
	MPI_COMBINER_RESIZED = 17,
	MPI_COMBINER_F90_REAL = 14,
	MPI_COMBINER_F90_COMPLEX = 15,
	MPI_COMBINER_F90_INTEGER = 16,
};

/* addresses with a special meaning */
#define MPI_BOTTOM ((void *)0)
#define MPI_IN_PLACE ((void *)1)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)
#define MPI_ERRCODES_IGNORE ((int *)0)

/* The handles: type, name, and the symbol of the data object whose address is the handle. */
/* clang-format off */
#define PREDEFINED_HANDLES(HANDLE) \
	HANDLE(MPI_Comm, MPI_COMM_NULL, ompi_mpi_comm_null) \
	HANDLE(MPI_Comm, MPI_COMM_WORLD, ompi_mpi_comm_world) \
	HANDLE(MPI_Comm, MPI_COMM_SELF, ompi_mpi_comm_self) \
	HANDLE(MPI_Win, MPI_WIN_NULL, ompi_mpi_win_null) \
	HANDLE(MPI_Group, MPI_GROUP_NULL, ompi_mpi_group_null) \
	HANDLE(MPI_Group, MPI_GROUP_EMPTY, ompi_mpi_group_empty) \
	HANDLE(MPI_Info, MPI_INFO_NULL, ompi_mpi_info_null) \
	HANDLE(MPI_Request, MPI_REQUEST_NULL, ompi_request_null) \
	HANDLE(MPI_Message, MPI_MESSAGE_NULL, ompi_message_null) \
	HANDLE(MPI_Message, MPI_MESSAGE_NO_PROC, ompi_message_no_proc) \
	HANDLE(MPI_Errhandler, MPI_ERRHANDLER_NULL, ompi_mpi_errhandler_null) \
	HANDLE(MPI_Errhandler, MPI_ERRORS_ARE_FATAL, ompi_mpi_errors_are_fatal) \
	HANDLE(MPI_Errhandler, MPI_ERRORS_RETURN, ompi_mpi_errors_return) \
	HANDLE(MPI_Op, MPI_OP_NULL, ompi_mpi_op_null) \
	HANDLE(MPI_Op, MPI_SUM, ompi_mpi_op_sum) \
	HANDLE(MPI_Op, MPI_MIN, ompi_mpi_op_min) \
	HANDLE(MPI_Op, MPI_MAX, ompi_mpi_op_max) \
	HANDLE(MPI_Op, MPI_PROD, ompi_mpi_op_prod) \
	HANDLE(MPI_Op, MPI_LAND, ompi_mpi_op_land) \
	HANDLE(MPI_Op, MPI_BAND, ompi_mpi_op_band) \
	HANDLE(MPI_Op, MPI_LOR, ompi_mpi_op_lor) \
	HANDLE(MPI_Op, MPI_BOR, ompi_mpi_op_bor) \
	HANDLE(MPI_Op, MPI_LXOR, ompi_mpi_op_lxor) \
	HANDLE(MPI_Op, MPI_BXOR, ompi_mpi_op_bxor) \
	HANDLE(MPI_Op, MPI_MINLOC, ompi_mpi_op_minloc) \
	HANDLE(MPI_Op, MPI_MAXLOC, ompi_mpi_op_maxloc) \
	HANDLE(MPI_Op, MPI_REPLACE, ompi_mpi_op_replace) \
	HANDLE(MPI_Op, MPI_NO_OP, ompi_mpi_op_no_op) \
	HANDLE(MPI_Datatype, MPI_DATATYPE_NULL, ompi_mpi_datatype_null) \
	HANDLE(MPI_Datatype, MPI_CHAR, ompi_mpi_char) \
	HANDLE(MPI_Datatype, MPI_SIGNED_CHAR, ompi_mpi_signed_char) \
	HANDLE(MPI_Datatype, MPI_UNSIGNED_CHAR, ompi_mpi_unsigned_char) \
	HANDLE(MPI_Datatype, MPI_BYTE, ompi_mpi_byte) \
	HANDLE(MPI_Datatype, MPI_PACKED, ompi_mpi_packed) \
	HANDLE(MPI_Datatype, MPI_WCHAR, ompi_mpi_wchar) \
	HANDLE(MPI_Datatype, MPI_SHORT, ompi_mpi_short) \
	HANDLE(MPI_Datatype, MPI_UNSIGNED_SHORT, ompi_mpi_unsigned_short) \
	HANDLE(MPI_Datatype, MPI_INT, ompi_mpi_int) \
	HANDLE(MPI_Datatype, MPI_UNSIGNED, ompi_mpi_unsigned) \
	HANDLE(MPI_Datatype, MPI_LONG, ompi_mpi_long) \
	HANDLE(MPI_Datatype, MPI_UNSIGNED_LONG, ompi_mpi_unsigned_long) \
	HANDLE(MPI_Datatype, MPI_LONG_LONG_INT, ompi_mpi_long_long_int) \
	HANDLE(MPI_Datatype, MPI_UNSIGNED_LONG_LONG, ompi_mpi_unsigned_long_long) \
	HANDLE(MPI_Datatype, MPI_FLOAT, ompi_mpi_float) \
	HANDLE(MPI_Datatype, MPI_DOUBLE, ompi_mpi_double) \
	HANDLE(MPI_Datatype, MPI_LONG_DOUBLE, ompi_mpi_long_double) \
	HANDLE(MPI_Datatype, MPI_INT8_T, ompi_mpi_int8_t) \
	HANDLE(MPI_Datatype, MPI_INT16_T, ompi_mpi_int16_t) \
	HANDLE(MPI_Datatype, MPI_INT32_T, ompi_mpi_int32_t) \
	HANDLE(MPI_Datatype, MPI_INT64_T, ompi_mpi_int64_t) \
	HANDLE(MPI_Datatype, MPI_UINT8_T, ompi_mpi_uint8_t) \
	HANDLE(MPI_Datatype, MPI_UINT16_T, ompi_mpi_uint16_t) \
	HANDLE(MPI_Datatype, MPI_UINT32_T, ompi_mpi_uint32_t) \
	HANDLE(MPI_Datatype, MPI_UINT64_T, ompi_mpi_uint64_t) \
	HANDLE(MPI_Datatype, MPI_AINT, ompi_mpi_aint) \
	HANDLE(MPI_Datatype, MPI_OFFSET, ompi_mpi_offset) \
	HANDLE(MPI_Datatype, MPI_COUNT, ompi_mpi_count) \
	HANDLE(MPI_Datatype, MPI_C_BOOL, ompi_mpi_c_bool) \
	HANDLE(MPI_Datatype, MPI_C_FLOAT_COMPLEX, ompi_mpi_c_float_complex) \
	HANDLE(MPI_Datatype, MPI_C_DOUBLE_COMPLEX, ompi_mpi_c_double_complex) \
	HANDLE(MPI_Datatype, MPI_C_LONG_DOUBLE_COMPLEX, ompi_mpi_c_long_double_complex) \
	HANDLE(MPI_Datatype, MPI_CXX_BOOL, ompi_mpi_cxx_bool) \
	HANDLE(MPI_Datatype, MPI_CXX_FLOAT_COMPLEX, ompi_mpi_cxx_cplex) \
	HANDLE(MPI_Datatype, MPI_CXX_DOUBLE_COMPLEX, ompi_mpi_cxx_dblcplex) \
	HANDLE(MPI_Datatype, MPI_CXX_LONG_DOUBLE_COMPLEX, ompi_mpi_cxx_ldblcplex) \
	HANDLE(MPI_Datatype, MPI_FLOAT_INT, ompi_mpi_float_int) \
	HANDLE(MPI_Datatype, MPI_DOUBLE_INT, ompi_mpi_double_int) \
	HANDLE(MPI_Datatype, MPI_LONG_INT, ompi_mpi_long_int) \
	HANDLE(MPI_Datatype, MPI_2INT, ompi_mpi_2int) \
	HANDLE(MPI_Datatype, MPI_SHORT_INT, ompi_mpi_short_int) \
	HANDLE(MPI_Datatype, MPI_LONG_DOUBLE_INT, ompi_mpi_longdbl_int) \
	HANDLE(MPI_Datatype, MPI_CHARACTER, ompi_mpi_character) \
	HANDLE(MPI_Datatype, MPI_LOGICAL, ompi_mpi_logical) \
	HANDLE(MPI_Datatype, MPI_INTEGER, ompi_mpi_integer) \
	HANDLE(MPI_Datatype, MPI_INTEGER1, ompi_mpi_integer1) \
	HANDLE(MPI_Datatype, MPI_INTEGER2, ompi_mpi_integer2) \
	HANDLE(MPI_Datatype, MPI_INTEGER4, ompi_mpi_integer4) \
	HANDLE(MPI_Datatype, MPI_INTEGER8, ompi_mpi_integer8) \
	HANDLE(MPI_Datatype, MPI_REAL, ompi_mpi_real) \
	HANDLE(MPI_Datatype, MPI_REAL4, ompi_mpi_real4) \
	HANDLE(MPI_Datatype, MPI_REAL8, ompi_mpi_real8) \
	HANDLE(MPI_Datatype, MPI_DOUBLE_PRECISION, ompi_mpi_dblprec) \
	HANDLE(MPI_Datatype, MPI_COMPLEX, ompi_mpi_cplex) \
	HANDLE(MPI_Datatype, MPI_COMPLEX8, ompi_mpi_complex8) \
	HANDLE(MPI_Datatype, MPI_COMPLEX16, ompi_mpi_complex16) \
	HANDLE(MPI_Datatype, MPI_DOUBLE_COMPLEX, ompi_mpi_dblcplex) \
	HANDLE(MPI_Datatype, MPI_2INTEGER, ompi_mpi_2integer) \
	HANDLE(MPI_Datatype, MPI_2REAL, ompi_mpi_2real) \
	HANDLE(MPI_Datatype, MPI_2DOUBLE_PRECISION, ompi_mpi_2dblprec) \
	HANDLE(MPI_Session, MPI_SESSION_NULL, ompi_mpi_instance_null) \
	HANDLE(MPI_Errhandler, MPI_ERRORS_ABORT, ompi_mpi_errors_abort)

/* clang-format on */

#define DECLARED(type, name, symbol) extern type name __attribute__((visibility("hidden")));
PREDEFINED_HANDLES(DECLARED)
#define HANDLES_ARE_LOOKED_UP 1
#define MPI_ERRORS_ABORT MPI_ERRORS_ABORT /* for #ifdef; NULL before Open MPI 5 */

#include "../functions.h"

/* The library's own copy functions, which copy nothing. */
MPI_Comm_copy_attr_function OMPI_C_MPI_COMM_NULL_COPY_FN;
MPI_Type_copy_attr_function OMPI_C_MPI_TYPE_NULL_COPY_FN;
#define MPI_COMM_NULL_COPY_FN OMPI_C_MPI_COMM_NULL_COPY_FN
#define MPI_TYPE_NULL_COPY_FN OMPI_C_MPI_TYPE_NULL_COPY_FN

#endif
