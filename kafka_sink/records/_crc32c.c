/* CRC-32C; see _kernel.h. */

#include "_kernel.h"

#include <string.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_X86_CRC32C
#endif

/* A CRC is a remainder by POLYNOMIAL: bit 31 of the word is the coefficient of x^0, bit 0 that of x^31. Appending n
 * bytes multiplies the remainder of the bytes before by x^8n. So the CRC of the whole follows from the CRCs of its
 * parts.
 *
 * Processors with a CRC instruction take a word of 8 bytes per cycle, but return its result after three cycles. So
 * three lanes of a block are summed at a time. Without the instruction, Python requests no CRCs from this kernel,
 * because the crc32c package supports more processors. */
#define POLYNOMIAL 0x82F63B78u
#define X_TO_THE_0 0x80000000u
#define LONG_LANE 256
#define SHORT_LANE 64

/* x^(8 * 2^i), and the factors for lanes that have other lanes after them. Set at each import to the same values. */
static uint32_t EIGHT_TIMES_2_TO_THE[31];
static uint64_t LONG_LANE_ON, LONG_LANES_ON, SHORT_LANE_ON, SHORT_LANES_ON;

static inline uint32_t times_x(uint32_t remainder)
{
    return remainder >> 1 ^ (POLYNOMIAL & -(remainder & 1));
}

static uint32_t product(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;
    for (int i = 0; i < 32; i++, a <<= 1, b = times_x(b))
        sum ^= b & -(a >> 31);
    return sum;
}

static uint32_t power_of_x(int exponent)
{
    uint32_t power = X_TO_THE_0;
    while (exponent-- > 0)
        power = times_x(power);
    return power;
}

/* The factor that appends `bytes` bytes to a remainder in `three_lanes`. A carry-less product of two reflected words
 * has one extra factor x. The instruction that takes its remainder multiplies by x^32, as for any data. */
static uint64_t lane_power(int bytes)
{
    return power_of_x(8 * bytes - 33);
}

void make_powers(void)
{
    EIGHT_TIMES_2_TO_THE[0] = power_of_x(8);
    for (size_t i = 1; i < sizeof EIGHT_TIMES_2_TO_THE / sizeof *EIGHT_TIMES_2_TO_THE; i++)
        EIGHT_TIMES_2_TO_THE[i] = product(EIGHT_TIMES_2_TO_THE[i - 1], EIGHT_TIMES_2_TO_THE[i - 1]);
    LONG_LANE_ON = lane_power(LONG_LANE);
    LONG_LANES_ON = lane_power(2 * LONG_LANE);
    SHORT_LANE_ON = lane_power(SHORT_LANE);
    SHORT_LANES_ON = lane_power(2 * SHORT_LANE);
}

uint32_t join_crcs(uint32_t first, uint32_t second, uint32_t size)
{
    for (int i = 0; size != 0; i++, size >>= 1)
        if (size & 1)
            first = product(first, EIGHT_TIMES_2_TO_THE[i]);
    return first ^ second;
}

#ifdef HAS_X86_CRC32C
/* GCC has the CRC instruction in sse4.2. clang 14 and later have it as a feature of its own. */
#ifdef __clang__
#define TARGET __attribute__((target("sse4.2,crc32,pclmul")))
#else
#define TARGET __attribute__((target("sse4.2,pclmul")))
#endif

int has_crc32c(void)
{
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

static inline uint64_t word_at(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

/* Three adjacent lanes of `lane` bytes each: two lanes follow the first, one follows the second. */
TARGET static inline uint64_t three_lanes(uint64_t state, const uint8_t *at, int64_t lane, uint64_t two_on,
                                          uint64_t one_on)
{
    uint64_t second = 0, third = 0;
    for (const uint8_t *end = at + lane; at < end; at += 8) {
        state = _mm_crc32_u64(state, word_at(at));
        second = _mm_crc32_u64(second, word_at(at + lane));
        third = _mm_crc32_u64(third, word_at(at + 2 * lane));
    }
    __m128i on = _mm_set_epi64x((int64_t)one_on, (int64_t)two_on);
    __m128i states = _mm_set_epi64x((int64_t)second, (int64_t)state);
    __m128i sum = _mm_xor_si128(_mm_clmulepi64_si128(states, on, 0x00), _mm_clmulepi64_si128(states, on, 0x11));
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(sum)) ^ third;
}

TARGET static uint32_t extend_state(uint32_t start, const uint8_t *at, int64_t size)
{
    uint64_t state = start;
    for (; size >= 3 * LONG_LANE; at += 3 * LONG_LANE, size -= 3 * LONG_LANE)
        state = three_lanes(state, at, LONG_LANE, LONG_LANES_ON, LONG_LANE_ON);
    for (; size >= 3 * SHORT_LANE; at += 3 * SHORT_LANE, size -= 3 * SHORT_LANE)
        state = three_lanes(state, at, SHORT_LANE, SHORT_LANES_ON, SHORT_LANE_ON);
    for (; size >= 8; at += 8, size -= 8)
        state = _mm_crc32_u64(state, word_at(at));
    for (; size > 0; at++, size--)
        state = _mm_crc32_u8((uint32_t)state, *at);
    return (uint32_t)state;
}
#else
int has_crc32c(void)
{
    return 0;
}
#endif

uint32_t extend_crc(uint32_t crc, const uint8_t *at, int64_t size)
{
    uint32_t state = ~crc;
#ifdef HAS_X86_CRC32C
    if (has_crc32c())
        return ~extend_state(state, at, size);
#endif
    for (; size > 0; at++, size--) {
        state ^= *at;
        for (int i = 0; i < 8; i++)
            state = times_x(state);
    }
    return ~state;
}
