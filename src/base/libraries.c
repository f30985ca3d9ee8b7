/* libraries.c - the table of optional libraries. The code that needs a missing library says so
 * itself. */
#include "base/libraries.h"

#include <dlfcn.h>
#include <string.h>

#ifdef LK_HAVE_HWLOC
#define HWLOC true
#else
#define HWLOC false
#endif
#ifdef LK_HAVE_LIBZIP
#define LIBZIP true
#else
#define LIBZIP false
#endif
#ifdef LK_HAVE_YAML
#define YAML true
#else
#define YAML false
#endif
#ifdef LK_HAVE_JPEG
#define JPEG true
#else
#define JPEG false
#endif
#ifdef LK_HAVE_PNG
#define PNG true
#else
#define PNG false
#endif
#ifdef LK_HAVE_CURL
#define CURL true
#else
#define CURL false
#endif
#ifdef LK_HAVE_CRYPTO
#define CRYPTO true
#else
#define CRYPTO false
#endif
#ifdef LK_HAVE_LIBDEFLATE
#define LIBDEFLATE true
#else
#define LIBDEFLATE false
#endif
#ifdef LK_HAVE_MICROHTTPD
#define MICROHTTPD true
#else
#define MICROHTTPD false
#endif
#ifdef LK_HAVE_PROTOBUFC
#define PROTOBUFC true
#else
#define PROTOBUFC false
#endif

static const lk_library libraries[] = {
    {"hwloc", "binding ranks to cores", HWLOC},
    {"libzip", "reading .pth and .pt files", LIBZIP},
    {"libyaml", "`config`", YAML},
    {"libjpeg", "folders of JPEG images", JPEG},
    {"libpng", "folders of PNG images", PNG},
    {"libcurl", "lockstep data get", CURL, .loaded = true},
    {"protobuf-c", "TensorBoard's event files of `log_dir`", PROTOBUFC},
    {"libcrypto", "sums of lockstep data get and verify", CRYPTO},
    {"libdeflate", "faster unpacking of gzipped data files", LIBDEFLATE},
    {"libmicrohttpd", "the live page", MICROHTTPD, .loaded = true},
};

const lk_library *lk__library_list(size_t index)
{
    return index < sizeof libraries / sizeof *libraries ? &libraries[index] : NULL;
}

bool lk__library_symbol(void *library, const char *name, void *to)
{
    void *address = dlsym(library, name);
    memcpy(to, &address, sizeof address);
    return address != NULL;
}
