/* executable.h - finds the program that the ranks run. */
#ifndef LK_LAUNCH_EXECUTABLE_H
#define LK_LAUNCH_EXECUTABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { LK_EXECUTABLE_BYTES = 4096 };

/* Finds the program `name` as a shell does. NOT_FOUND: the detail says what is wrong. */
lk_status lk__executable_find(const char *name, char path[LK_EXECUTABLE_BYTES]) LK_CHECKED;
/* Returns NOT_FOUND with the reason why execve(2) refused path. */
lk_status lk__executable_refused(const char *path, int error);

#endif
