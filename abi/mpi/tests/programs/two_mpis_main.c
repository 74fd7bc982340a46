/* Opens shared libraries that are linked to different MPIs, each in a scope of its own, and runs both. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
		int (*half)(void) = library ? (int (*)(void))dlsym(library, "half") : NULL;
		int code = half ? half() : -1;

		if (code) {
			fprintf(stderr, "%s: %d %s\n", argv[i], code, half ? "" : dlerror());
			return 1;
		}
	}
	printf("ok two_mpis\n");
	return 0;
}
