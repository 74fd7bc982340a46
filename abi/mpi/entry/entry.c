/*
 * The program's MPI calls arrive here. The first call decides which MPI this process has and whether a bridge
 * serves that MPI. From then on each name jumps to the bridge's function, or to the host's own function if no
 * bridge serves it.
 *
 * A process may load two MPIs, for example when a program of one MPI opens a module of another. The preload
 * notices the second MPI when it is initialized. From then on the preload resolves every call anew: Unisono
 * keeps serving the windows of the first MPI and leaves the second MPI alone.
 */
#include "entry.h"
#include "bridge.h"
#include "launcher.h"
#include "slots.h"
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME(name) SLOT(".globl", #name)
#define CALL(name) NAME(MPI_##name) NAME(PMPI_##name)
#include "names.h"
SLOTS_FIRST;

/* recursive, because an MPI that the preload asks for its version may call functions that the preload
 * defines */
static pthread_mutex_t guard = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct mpi served; /* the MPI of this process; a null handle: not decided yet */
static void *bridge;	  /* NULL: no call is served */
static bool two_mpis;

static void say(const char *words, const char *more, const char *rest)
{
	if (rank_of_launcher() == 0)
		fprintf(stderr, "unisono: %s%s%s\n", words, more, rest);
}

static bool is_ours(const char *name)
{
	for (struct slot *slot = __start_unisono_slots; slot < __stop_unisono_slots; slot++)
		if (strcmp(slot->name, name) == 0)
			return true;
	return false;
}

/* Looks up a function or data object of the host MPI for a bridge. For a name that this preload defines,
 * the result is the next definition: a tool's or the MPI's own. */
static void *find(const char *name)
{
	void *found = dlsym(is_ours(name) ? RTLD_NEXT : RTLD_DEFAULT, name);

	return found ? found : dlsym(served.handle, name);
}

/* Finds a function of the host MPI, or one that it calls, as the caller would resolve it without the preload.
 */
static void *of_host(const char *name, struct mpi mpi, void *caller)
{
	void *found = two_mpis ? NULL : dlsym(RTLD_NEXT, name);
	void *module = found ? NULL : module_of(caller);

	if (module) {
		/* a lookup through the main program's handle may find this preload's own function */
		found = dlsym(module, name);
		if (found && is_ours(name) && dlsym(RTLD_DEFAULT, name) == found)
			found = NULL;
		dlclose(module);
	}
	if (!found && mpi.handle)
		found = dlsym(mpi.handle, name);
	if (!found) {
		fprintf(stderr,
			"unisono: the MPI of this program has no %s; start it without 'unisono mpi'\n", name);
		abort();
	}
	return found;
}

static void *find_for(const char *name, void *caller)
{
	return of_host(name, served, caller);
}

/* Opens a library in the directory of this one. */
static void *open_beside(const char *stem, const char *more, int mode)
{
	char path[PATH_MAX];
	Dl_info info;
	void *opened;

	if (!dladdr(&served, &info) || !strrchr(info.dli_fname, '/'))
		return NULL;
	snprintf(path, sizeof path, "%.*s/%s%s.so", (int)(strrchr(info.dli_fname, '/') - info.dli_fname),
		 info.dli_fname, stem, more);
	opened = dlopen(path, mode);
	if (!opened)
		say("no windows are served, because a library cannot be opened: ", dlerror(), "");
	return opened;
}

/* Opens the core, with RTLD_GLOBAL: a bridge cannot be linked to the core, whose path is unknown at build
 * time. A core of another build may lack functions, or understand them differently. */
static bool open_core(void)
{
	void *core = open_beside("libunisono", "", RTLD_NOW | RTLD_GLOBAL);
	uint64_t (*interface)(void);
	char path[PATH_MAX], words[PATH_MAX + 128];
	Dl_info info;

	if (!core)
		return false;
	interface = (uint64_t(*)(void))dlsym(core, "unisono_mpi_interface");
	if (interface && interface() == UNISONO_MPI_INTERFACE)
		return true;
	if (!dladdr(dlsym(core, "unisono_version"), &info) || !realpath(info.dli_fname, path))
		strcpy(path, "libunisono.so");
	snprintf(words, sizeof words, "no windows are served, because %s is %s than this 'unisono mpi'", path,
		 interface ? "of another build" : "older");
	say(words, "; replace it by the libunisono.so of the same build or package",
	    " ('cargo build --release' makes both)");
	return false;
}

static void open_bridge(void)
{
	static const struct services services = { find, find_for };
	const char *given = getenv("UNISONO_MPI_BRIDGE"); /* compiled by the MPI's own mpicc */
	bridge_start *start;

	if (!served.abi && !given) {
		say("", *served.library ? served.library : "the program itself",
		    " is an MPI that no bridge is made for; the program runs without Unisono's windows "
		    "('unisono mpi --mpicc MPICC' compiles a bridge for it)");
		return;
	}
	if (!open_core())
		return;
	if (given) {
		bridge = dlopen(given, RTLD_NOW | RTLD_LOCAL);
		if (!bridge)
			say("no windows are served, because a bridge cannot be opened: ", dlerror(), "");
	} else {
		bridge = open_beside("libunisono-mpi-", name_of_abi(served.abi), RTLD_NOW | RTLD_LOCAL);
	}
	if (!bridge)
		return;
	start = (bridge_start *)dlsym(bridge, "unisono_mpi_bridge_start");
	start(&services);
}

/*
 * Ends the process if another MPI's launcher started it as one of several ranks: each of them would take
 * itself for the only one. 'unisono mpi' refuses programs that are linked to their MPI before they start;
 * this is for programs that load it later, such as Python with mpi4py. The first rank prints the message, and
 * the others wait, because a launcher may drop it once another rank has failed.
 */
static void refuse_other_launcher(void)
{
	enum { REPORT_DELAY_US = 300000 };
	const char *launcher = launchers_mpi(), *own = name_of_abi(served.abi);
	char words[512];

	if (!launcher || getenv("UNISONO_MPI_SINGLETON") || strcmp(launcher, own) == 0 ||
	    (served.abi != MPICH_ABI && served.abi != OPEN_MPI_ABI))
		return;
	/* the launcher of Open MPI can start the ranks of an MPICH that is linked to PMIx */
	if (served.abi == MPICH_ABI && dlsym(served.handle, "PMIx_Init"))
		return;
	snprintf(words, sizeof words,
		 "%s has loaded %s, but the mpiexec of %s started it, with which every rank is alone; use "
		 "the mpiexec of %s, or 'unisono mpi --singleton' if each is to run alone",
		 program_invocation_short_name, own, launcher, own);
	say(words, "", "");
	if (rank_of_launcher() != 0)
		usleep(REPORT_DELAY_US);
	nothing_unused();
	_exit(2);
}

static bool is_beginning(const char *name)
{
	const char *call = name + strcspn(name, "_");

	return strcmp(call, "_Init") == 0 || strcmp(call, "_Init_thread") == 0;
}

/* Finds the function for a slot; the caller holds the guard. The slot keeps the function, unless each call
 * of this name has to be resolved anew. */
static void *target(struct slot *slot, void *caller)
{
	const char *call = slot->name + (strncmp(slot->name, "PMPI_", 5) == 0);
	bool beginning = is_beginning(slot->name);
	struct mpi mpi = served;
	void *function = NULL;

	if (!served.handle || beginning || two_mpis) {
		mpi = mpi_of_caller(caller);
		if (!served.handle && mpi.handle) {
			served = mpi;
			refuse_other_launcher();
			open_bridge();
		}
	}
	if (beginning && !two_mpis && mpi.handle != served.handle) {
		two_mpis = true;
		say("this process has two MPIs; the windows of the first are served, and not those of ",
		    mpi.library, "");
		for (struct slot *other = __start_unisono_slots; other < __stop_unisono_slots; other++)
			atomic_store(&other->function, other->first);
	}
	if (bridge && mpi.handle == served.handle)
		function = dlsym(bridge, call);
	if (!function)
		function = of_host(slot->name, mpi, caller);
	if (!beginning && !two_mpis && served.handle)
		atomic_store_explicit(&slot->function, function, memory_order_release);
	return function;
}

void *slot_target(struct slot *slot, void *caller)
{
	void *function;

	if (is_beginning(slot->name) || strstr(slot->name, "_Session_finalize"))
		nothing_unused();
	pthread_mutex_lock(&guard);
	function = target(slot, caller);
	pthread_mutex_unlock(&guard);
	return function;
}
