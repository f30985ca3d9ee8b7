/* checksum.c - MD5 and SHA-256 by libcrypto, of memory and of files, plain or gzipped. */
#include "data/sets/checksum.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/mem.h"

enum { CHUNK = 1 << 18 };

#ifdef LK_HAVE_CRYPTO
#include <openssl/evp.h>

struct lk_checksum {
    size_t bytes;
    EVP_MD_CTX *md5, *sha256;
};

lk_status lk__checksum_available(void)
{
    return LK_OK;
}

lk_status lk__checksum_create(lk_checksum **out)
{
    lk_checksum *sum = NULL;
    LK_TRY(LK_ALLOC(1, "a checksum", &sum));
    sum->md5 = EVP_MD_CTX_new();
    sum->sha256 = EVP_MD_CTX_new();
    if (!sum->md5 || !sum->sha256 || EVP_DigestInit_ex(sum->md5, EVP_md5(), NULL) != 1 ||
        EVP_DigestInit_ex(sum->sha256, EVP_sha256(), NULL) != 1) {
        lk__checksum_destroy(sum);
        return lk__fail(LK_STATUS_UNSUPPORTED, "libcrypto gives no MD5 or no SHA-256 here; does its configuration "
                                               "forbid them (FIPS)?");
    }
    *out = sum;
    return LK_OK;
}

lk_status lk__checksum_add(lk_checksum *sum, const void *data, size_t bytes)
{
    sum->bytes += bytes;
    if (EVP_DigestUpdate(sum->md5, data, bytes) != 1 || EVP_DigestUpdate(sum->sha256, data, bytes) != 1)
        return lk__fail(LK_STATUS_UNSUPPORTED, "libcrypto failed to compute a checksum");
    return LK_OK;
}

/* Writes the digest as text; the digest has bytes / 2 bytes. */
static bool finish_one(EVP_MD_CTX *context, char *text, size_t bytes)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (EVP_DigestFinal_ex(context, digest, &length) != 1 || length != bytes / 2)
        return false;
    for (size_t i = 0; i < length; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return true;
}

lk_status lk__checksum_finish(lk_checksum *sum, lk_checksum_pair *out)
{
    lk_checksum_pair sums = {.bytes = sum->bytes};
    if (!finish_one(sum->md5, sums.md5, sizeof sums.md5) || !finish_one(sum->sha256, sums.sha256, sizeof sums.sha256))
        return lk__fail(LK_STATUS_UNSUPPORTED, "libcrypto failed to compute a checksum");
    *out = sums;
    return LK_OK;
}

void lk__checksum_destroy(lk_checksum *sum)
{
    if (sum == NULL)
        return;
    EVP_MD_CTX_free(sum->md5);
    EVP_MD_CTX_free(sum->sha256);
    lk__mem_free(sum);
}
#else
lk_status lk__checksum_available(void)
{
    return lk__fail(LK_STATUS_UNSUPPORTED, "this build has no libcrypto, and files cannot be checked without it; "
                                           "install Debian's libssl-dev and build again");
}

lk_status lk__checksum_create(lk_checksum **out)
{
    (void)out;
    return lk__checksum_available();
}

lk_status lk__checksum_add(lk_checksum *sum, const void *data, size_t bytes)
{
    (void)sum, (void)data, (void)bytes;
    return lk__checksum_available();
}

lk_status lk__checksum_finish(lk_checksum *sum, lk_checksum_pair *out)
{
    (void)sum, (void)out;
    return lk__checksum_available();
}

void lk__checksum_destroy(lk_checksum *sum)
{
    (void)sum;
}
#endif

/* A file that is read plain or through gunzip. */
typedef struct reader {
    const char *path;
    int fd;
    gzFile gzip; /* NULL: plain */
    uint8_t *chunk;
} reader;

static lk_status read_chunk(reader *r, size_t *got)
{
    if (r->gzip != NULL)
        return lk__gzip_read(r->gzip, r->path, r->chunk, CHUNK, got);
    ssize_t n;
    do
        n = read(r->fd, r->chunk, CHUNK);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return lk__fail(LK_STATUS_IO, "cannot read %s: %s", r->path, strerror(errno));
    *got = (size_t)n;
    return LK_OK;
}

static lk_status reader_open(reader *r, const char *path, bool content)
{
    size_t bytes = 0;
    *r = (reader){.path = path, .fd = -1};
    LK_TRY(lk__file_open(path, &r->fd, &bytes));
    if (content && (r->gzip = gzdopen(r->fd, "rb")) == NULL)
        return lk__fail_memory(CHUNK, "inflating a file");
    return LK_ALLOC(CHUNK, "a part of a file", &r->chunk);
}

/* gzclose also closes the descriptor. */
static void reader_close(reader *r)
{
    if (r->gzip != NULL)
        gzclose(r->gzip);
    else if (r->fd >= 0)
        close(r->fd);
    lk__mem_free(r->chunk);
}

static lk_status add_all(reader *r, size_t most, lk_checksum *sum)
{
    size_t got = 0, total = 0;
    do {
        LK_TRY(read_chunk(r, &got));
        got = lk__size_min(got, most == SIZE_MAX ? got : most + 1 - total);
        total += got;
        LK_TRY(lk__checksum_add(sum, r->chunk, got));
    } while (got > 0 && total <= most);
    return LK_OK;
}

lk_status lk__checksum_file(const char *path, bool content, size_t most, lk_checksum_pair *out)
{
    lk_checksum *sum = NULL;
    lk_status status;
    LK_TRY(lk__checksum_create(&sum));
    reader r;
    LK_TRY_GOTO(reader_open(&r, path, content), close_reader);
    LK_TRY_GOTO(add_all(&r, content ? most : SIZE_MAX, sum), close_reader);
    status = lk__checksum_finish(sum, out);
close_reader:
    reader_close(&r);
    lk__checksum_destroy(sum);
    return status;
}

lk_status lk__checksum_check(const char *path, const lk_checksum_pair *found, const lk_checksum_published *expected)
{
    if (found->bytes < expected->bytes)
        return lk__fail(LK_STATUS_MISMATCH, "%s: ends at byte %zu, and %zu bytes are expected", path, found->bytes,
                        expected->bytes);
    if (found->bytes > expected->bytes)
        return lk__fail(LK_STATUS_MISMATCH, "%s: holds more than the %zu bytes that are expected", path,
                        expected->bytes);
    if (expected->md5 != NULL && strcmp(found->md5, expected->md5) != 0)
        return lk__fail(LK_STATUS_MISMATCH, "%s: wrong MD5 sum: expected %s, found %s", path, expected->md5,
                        found->md5);
    if (expected->sha256 != NULL && strcmp(found->sha256, expected->sha256) != 0)
        return lk__fail(LK_STATUS_MISMATCH, "%s: wrong SHA-256 sum: expected %s, found %s", path, expected->sha256,
                        found->sha256);
    return LK_OK;
}
