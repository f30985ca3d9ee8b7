/* crc32c.h - the checksum of event files: CRC-32C (Castagnoli), and the masked form that they store. */
#ifndef LK_RECORD_CRC32C_H
#define LK_RECORD_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t lk__record_crc32c(const void *data, size_t bytes);
/* Rotated and shifted, so that a checksum of data that contain checksums stays a good one. */
uint32_t lk__record_crc32c_masked(const void *data, size_t bytes);

#endif
