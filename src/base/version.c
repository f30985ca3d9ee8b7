/* version.c - the version of the library. */
#include <lockstep/version.h>

const char *lk_version(void)
{
    return LK_VERSION;
}
