/* Calls that begin to read or write a file. They are the host's own, but MPI_Waitall has to know their
 * requests. */
#include "waiting.h"

#define NOTED(name, arguments, values)                                                                       \
	BOTH(int, name, arguments)                                                                           \
	{                                                                                                    \
		int code = OF_HOST(name) values;                                                             \
                                                                                                             \
		if (!code)                                                                                   \
			note_file_request(*request);                                                         \
		return code;                                                                                 \
	}

#define HERE(name, constant, count_type)                                                                     \
	NOTED(name,                                                                                          \
	      (MPI_File file, constant void *buffer, count_type count, MPI_Datatype type,                    \
	       MPI_Request *request),                                                                        \
	      (file, buffer, count, type, request))
#define AT(name, constant, count_type)                                                                       \
	NOTED(name,                                                                                          \
	      (MPI_File file, MPI_Offset offset, constant void *buffer, count_type count, MPI_Datatype type, \
	       MPI_Request *request),                                                                        \
	      (file, offset, buffer, count, type, request))

#define ALL(suffix, count_type)                                                                              \
	HERE(File_iread##suffix, , count_type)                                                               \
	HERE(File_iread_all##suffix, , count_type)                                                           \
	HERE(File_iread_shared##suffix, , count_type)                                                        \
	HERE(File_iwrite##suffix, const, count_type)                                                         \
	HERE(File_iwrite_all##suffix, const, count_type)                                                     \
	HERE(File_iwrite_shared##suffix, const, count_type)                                                  \
	AT(File_iread_at##suffix, , count_type)                                                              \
	AT(File_iread_at_all##suffix, , count_type)                                                          \
	AT(File_iwrite_at##suffix, const, count_type)                                                        \
	AT(File_iwrite_at_all##suffix, const, count_type)

ALL(, int)
#if MPI_VERSION >= 4
ALL(_c, MPI_Count)
#endif
