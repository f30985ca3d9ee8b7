/* version.h - the version of Lockstep. This file is the one place that has it: the build reads the three numbers. */
#ifndef LOCKSTEP_VERSION_H
#define LOCKSTEP_VERSION_H

#include <lockstep/status.h>

#define LK_VERSION_MAJOR 0
#define LK_VERSION_MINOR 1
#define LK_VERSION_PATCH 0

#define LK_VERSION_JOIN(major, minor, patch) #major "." #minor "." #patch
#define LK_VERSION_TEXT(major, minor, patch) LK_VERSION_JOIN(major, minor, patch)
/* The version of these headers, as "0.1.0". */
#define LK_VERSION LK_VERSION_TEXT(LK_VERSION_MAJOR, LK_VERSION_MINOR, LK_VERSION_PATCH)

LK_API_BEGIN

/* The version of the library that the program runs with, in the form of LK_VERSION. Any thread may call it. */
const char *lk_version(void);

LK_API_END
#endif
