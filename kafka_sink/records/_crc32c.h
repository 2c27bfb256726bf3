/* CRC-32C (Castagnoli), by the processor's instruction where there is one. */

#ifndef KAFKA_SINK_CRC32C_H
#define KAFKA_SINK_CRC32C_H

#include <stdint.h>

/* Must be called before the functions below. Calling it again does no harm. */
void make_powers(void);

/* True if the processor has the instructions. Without them, `extend_crc` is slow. */
int has_crc32c(void);

/* The CRC of bytes with the CRC `crc`, followed by `size` more bytes. */
uint32_t extend_crc(uint32_t crc, const uint8_t *at, int64_t size);

/* The CRC of bytes with the CRC `first`, followed by `size` < 2^31 bytes with the CRC `second`. */
uint32_t join_crcs(uint32_t first, uint32_t second, uint32_t size);

#endif
