/*
 * MPI_Comm_spawn and MPI_Comm_spawn_multiple: served ranks spawn 'unisono mpi OPTIONS -- COMMAND', so that
 * their children are served, too. The root decides, and sends its decision to the other ranks. It leaves the
 * commands of a call as they are if one of the programs is 'unisono' itself, is linked statically, or cannot
 * be found (the host's launcher then looks for it, or reports that it is missing).
 */
#include "shim.h"
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the file is an ELF file without an interpreter, into which nothing can be preloaded. */
static bool is_static(int file)
{
	Elf64_Ehdr header;
	Elf64_Phdr segment;

	if (pread(file, &header, sizeof header, 0) != sizeof header ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64)
		return false;
	for (int i = 0; i < header.e_phnum; i++)
		if (pread(file, &segment, sizeof segment, (off_t)(header.e_phoff + i * sizeof segment)) ==
			    sizeof segment &&
		    segment.p_type == PT_INTERP)
			return false;
	return true;
}

static bool can_be_preloaded(const char *path)
{
	struct stat status;
	int file;
	bool good;

	if (access(path, X_OK) || (file = open(path, O_RDONLY | O_CLOEXEC)) < 0)
		return false;
	good = !fstat(file, &status) && S_ISREG(status.st_mode) && !is_static(file);
	close(file);
	return good;
}

/* Looks for a command as the spawned 'unisono mpi' will: in the directory of `info`, or in PATH. */
static bool is_found(const char *command, MPI_Info info)
{
	char directory[MPI_MAX_INFO_VAL + 1] = "", other[2], path[PATH_MAX];
	const char *next = getenv("PATH");
	int found = 0, size;

	if (info != MPI_INFO_NULL) {
		/* a path of the launcher's own, in which 'unisono mpi' would not look */
		if (!PMPI_Info_get(info, "path", 1, other, &found) && found)
			return false;
		found = 0;
		if (PMPI_Info_get(info, "wdir", MPI_MAX_INFO_VAL, directory, &found) || !found)
			directory[0] = 0;
	}
	if (strchr(command, '/')) {
		size = snprintf(path, sizeof path, "%s%s%s", *command == '/' ? "" : directory,
				*command == '/' || !*directory ? "" : "/", command);
		return size < (int)sizeof path && can_be_preloaded(path);
	}
	while (next && *next) {
		int length = (int)strcspn(next, ":");

		size = snprintf(path, sizeof path, "%.*s/%s", length, next, command);
		if (size < (int)sizeof path && can_be_preloaded(path))
			return true;
		next += length + (next[length] == ':');
	}
	return false;
}

static bool is_unisono(const char *command)
{
	const char *slash = strrchr(command, '/');

	return strcmp(slash ? slash + 1 : command, "unisono") == 0;
}

/* Makes the arguments of the 'unisono mpi' that starts `command`; NULL if memory is exhausted. Each option
 * is a line of the environment variable. */
static char **wrapped(const char *command, char **arguments)
{
	const char *options = getenv("UNISONO_MPI_OPTIONS");
	char *text = strdup(options ? options : ""), *rest = text, **made;
	size_t count = 0, next = 0;

	while (arguments && arguments[count])
		count++;
	made = text ? calloc(count + strlen(text) + 6, sizeof *made) : NULL;
	if (!made) {
		free(text);
		return NULL;
	}
	made[next++] = (char *)"mpi";
	made[next++] = (char *)"--spawned";
	for (char *option; (option = strsep(&rest, "\n"));)
		if (*option)
			made[next++] = option;
	made[next++] = (char *)"--";
	made[next++] = (char *)command;
	memcpy(made + next, arguments ? arguments : made, count * sizeof *made);
	return made; /* with `text`, which is never freed: a program spawns seldom */
}

/* The commands that the root spawns instead of the program's. */
struct commands {
	int count;
	char **names, ***arguments;
	const MPI_Info *infos;
};

static bool wrap(struct commands *commands, const char *unisono)
{
	char **names = calloc((size_t)commands->count, sizeof *names);
	char ***arguments = calloc((size_t)commands->count, sizeof *arguments);
	bool good = names && arguments;

	for (int i = 0; good && i < commands->count; i++) {
		const char *name = commands->names[i];

		good = name && !is_unisono(name) && is_found(name, commands->infos[i]);
		if (!good)
			break;
		names[i] = (char *)unisono;
		arguments[i] = wrapped(name, commands->arguments ? commands->arguments[i] : NULL);
		good = arguments[i] != NULL;
	}
	if (good) {
		commands->names = names;
		commands->arguments = arguments;
		return true;
	}
	for (int i = 0; arguments && i < commands->count; i++)
		free(arguments[i]);
	free(arguments);
	free(names);
	return false;
}

/* Prepares the commands and returns whether the children will be served; the same answer at all ranks of a
 * served communicator. */
static bool begin(struct commands *commands, int root, MPI_Comm comm)
{
	const char *unisono = getenv("UNISONO_MPI_PROGRAM");
	int rank = 0, good = 0;

	if (comm == MPI_COMM_NULL || !comm_is_served(comm))
		return false;
	PMPI_Comm_rank(comm, &rank);
	if (rank == root)
		good = unisono && wrap(commands, unisono);
	if (PMPI_Bcast(&good, 1, MPI_INT, root, comm))
		good = 0;
	if (!good)
		warn_once("the processes that this program spawns are not served, and communicators with "
			  "them are left to the program's MPI");
	return good;
}

static void discard(struct commands *commands)
{
	for (int i = 0; i < commands->count; i++)
		free(commands->arguments[i]);
	free(commands->arguments);
	free(commands->names);
}

BOTH(int, Comm_spawn,
     (const char *command, char *argv[], int maxprocs, MPI_Info info, int root, MPI_Comm comm,
      MPI_Comm *intercomm, int errcodes[]))
{
	char *name = (char *)command;
	struct commands commands = { .count = 1, .names = &name, .arguments = &argv, .infos = &info };
	bool served = begin(&commands, root, comm), at_root = commands.names != &name;
	int code = OF_HOST(Comm_spawn)(commands.names[0], commands.arguments[0], maxprocs, info, root, comm,
				       intercomm, errcodes);

	if (at_root)
		discard(&commands);
	if (!code && served)
		comm_has_served_children(*intercomm);
	return code;
}

BOTH(int, Comm_spawn_multiple,
     (int count, char *names[], char **argvs[], const int maxprocs[], const MPI_Info infos[], int root,
      MPI_Comm comm, MPI_Comm *intercomm, int errcodes[]))
{
	struct commands commands = { .count = count, .names = names, .arguments = argvs, .infos = infos };
	bool served = begin(&commands, root, comm), at_root = commands.names != names;
	int code = OF_HOST(Comm_spawn_multiple)(count, commands.names, commands.arguments, maxprocs, infos,
						root, comm, intercomm, errcodes);

	if (at_root)
		discard(&commands);
	if (!code && served)
		comm_has_served_children(*intercomm);
	return code;
}
