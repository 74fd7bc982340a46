/*
 * Prints the contents of an mpi.h: sizes of types, offsets of members, numbers, and handles. It is compiled
 * once with an MPI's own header (HEADER is unset: <mpi.h>), and once with the declarations of a bridge; both
 * outputs must be the same. A handle that is the address of a symbol is printed by that symbol's name.
 */
#define _GNU_SOURCE
#ifdef HEADER
#include HEADER
#else
#include <mpi.h>
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define NUMBER(name) printf(#name " %ld\n", (long)(name));
#define SIZE(type) printf("sizeof(" #type ") %zu\n", sizeof(type));
#define PLACE(member) printf("status." #member " %zu\n", offsetof(MPI_Status, member));
#define HANDLE(name) handle(#name, (intptr_t)(name));

#if defined(HANDLES_ARE_LOOKED_UP)
#define DEFINED(type, name, symbol) type name;
PREDEFINED_HANDLES(DEFINED)
#elif defined(UNISONO_STANDARD_ABI)
/* the values that host.c sets for every MPI except Intel's */
MPI_Errhandler errors_abort = (MPI_Errhandler)0x142, errors_return = (MPI_Errhandler)0x143;
#endif

static void handle(const char *name, intptr_t value)
{
	Dl_info info;

	if (value > 1 << 20 && dladdr((void *)value, &info) && info.dli_sname)
		printf("%s %s\n", name, info.dli_sname);
	else
		printf("%s 0x%lx\n", name, (unsigned long)value & 0xffffffff);
}

int main(void)
{
#ifdef HANDLES_ARE_LOOKED_UP
#define FOUND(type, name, symbol) name = (type)dlsym(RTLD_DEFAULT, #symbol);
	PREDEFINED_HANDLES(FOUND)
#endif
#include "names.h"
	return 0;
}
