/*
 * Finds the loaded MPIs and their ABIs.
 *
 * A call goes to the MPI that the dynamic linker would bind it to without this preload. That is an MPI in the
 * global scope (the program's own libraries, or a library that was opened with RTLD_GLOBAL). If there is
 * none, it is the MPI that the calling module is linked to (a module opened with RTLD_LOCAL, as Python opens
 * modules). The search looks for a function that this preload does not define.
 */
#include "entry.h"
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

static const char MARK[] = "PMPI_Comm_rank";

/* Finds the handle and the path of the mapped object that contains an address. */
static void *handle_at(void *address, const char **path)
{
	struct link_map *map = NULL;
	Dl_info info;

	if (!address || !dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
		return NULL;
	*path = map->l_name;
	/* the main program's name is empty */
	return dlopen(*map->l_name ? map->l_name : NULL, RTLD_LAZY | RTLD_NOLOAD);
}

void *module_of(void *caller)
{
	const char *path;

	return handle_at(caller, &path);
}

/* Finds any loaded MPI, for a call from code that was generated at run time and belongs to no module. */
static int look_into(struct dl_phdr_info *object, size_t size, void *found)
{
	void *handle = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);

	(void)size;
	if (!handle)
		return 0;
	*(void **)found = dlsym(handle, MARK);
	dlclose(handle);
	return *(void **)found != NULL;
}

static int number_behind(const char *text, const char *words)
{
	const char *at = strstr(text, words);

	return at ? atoi(at + strlen(words)) : 0;
}

/*
 * Determines the ABI of an MPI. PMPI_Abi_get_version() of the standard ABI reports -1 in an MPI of another
 * ABI. Older MPIs lack the function; their version texts identify them. libmpi.so.40 is Open MPI 3 to 5.
 * libmpi.so.12 is MPICH from 3.1 on, or an MPI with MPICH's ABI.
 */
static enum abi abi_of(void *handle)
{
	int (*abi_version)(int *, int *) = (int (*)(int *, int *))dlsym(handle, "PMPI_Abi_get_version");
	int (*library_version)(char *, int *) =
		(int (*)(char *, int *))dlsym(handle, "PMPI_Get_library_version");
	static char text[1 << 14];
	int major = -1, minor = -1, length;

	if (abi_version && !abi_version(&major, &minor) && major >= 0)
		return major == 1 ? STANDARD_ABI : UNKNOWN_ABI;
	if (!library_version || library_version(text, &length))
		return UNKNOWN_ABI;
	if (dlsym(handle, "ompi_mpi_comm_world")) {
		major = number_behind(text, "Open MPI v");
		return major >= 3 && major <= 5 ? OPEN_MPI_ABI : UNKNOWN_ABI;
	}
	if (strstr(text, "Intel(R) MPI") || strstr(text, "MVAPICH"))
		return MPICH_ABI;
	text[sizeof text - 1] = 0;
	const char *version = strstr(text, "MPICH Version");
	if (!version)
		return UNKNOWN_ABI;
	major = atoi(version + strcspn(version, "0123456789"));
	return major >= 3 && major <= 5 ? MPICH_ABI : UNKNOWN_ABI;
}

struct mpi mpi_of_caller(void *caller)
{
	struct mpi mpi = { 0 };
	void *mark = dlsym(RTLD_DEFAULT, MARK), *module;

	if (!mark) {
		module = module_of(caller);
		if (module) {
			mark = dlsym(module, MARK);
			dlclose(module);
		}
	}
	if (!mark)
		dl_iterate_phdr(look_into, &mark);
	mpi.handle = handle_at(mark, &mpi.library);
	if (mpi.handle)
		mpi.abi = *mpi.library ? abi_of(mpi.handle) : UNKNOWN_ABI;
	return mpi;
}

const char *name_of_abi(enum abi abi)
{
	return abi == MPICH_ABI ? "mpich" : abi == OPEN_MPI_ABI ? "openmpi" : "standard";
}
