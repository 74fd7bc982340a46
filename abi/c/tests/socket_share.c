/* Requests shares of a link for sockets while no guard runs, and with invalid arguments. Exit code 0: all
 * results were right. */
#include "check.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define REFUSED(call, number, words) CHECK((call) == -(number) && strstr(unisono_error_text(), (words)))

int main(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(fd >= 0);
	CHECK(setenv("UNISONO_QUEUE_GUARD", "/nowhere/at/all", 1) == 0);
	REFUSED(unisono_share_socket(fd, "video", 3), ECONNREFUSED, "unisono queue guard");
	REFUSED(unisono_share_socket(-1, "video", 3), EBADF, "descriptor");
	REFUSED(unisono_share_socket(fd, NULL, 3), EINVAL, "NULL");
	REFUSED(unisono_share_socket(fd, "a class", 3), EINVAL, "a class");
	REFUSED(unisono_share_socket(fd, "video", 0), EINVAL, "weight");
	puts("each refusal has its number and its words");
	return 0;
}
