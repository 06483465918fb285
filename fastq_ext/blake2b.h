/* BLAKE2b (RFC 7693), unkeyed and in one go: all that the unique key needs.
 *
 * A library call (hashlib) costs three times the hash itself for inputs of this size, hence our own.
 * Rounds are written out so that every message index is a constant and the state stays in registers.
 */
#ifndef FASTQ_BLAKE2B_H
#define FASTQ_BLAKE2B_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { BLAKE2B_BLOCK = 128, BLAKE2B_STATE = 64 };

static const uint64_t blake2b_start[8] = {
    UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b), UINT64_C(0x3c6ef372fe94f82b), UINT64_C(0xa54ff53a5f1d36f1),
    UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f), UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179),
};

/* Little-endian whatever the machine is; compilers make one load of it. */
static inline uint64_t blake2b_load(const unsigned char *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24
        | (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 | (uint64_t)p[7] << 56;
}

static inline uint64_t blake2b_turn(uint64_t x, int bits)
{
    return x >> bits | x << (64 - bits);
}

#define BLAKE2B_MIX(a, b, c, d, x, y) \
    do { \
        v[a] += v[b] + m[x]; \
        v[d] = blake2b_turn(v[d] ^ v[a], 32); \
        v[c] += v[d]; \
        v[b] = blake2b_turn(v[b] ^ v[c], 24); \
        v[a] += v[b] + m[y]; \
        v[d] = blake2b_turn(v[d] ^ v[a], 16); \
        v[c] += v[d]; \
        v[b] = blake2b_turn(v[b] ^ v[c], 63); \
    } while (0)

/* Four columns, then four diagonals. */
#define BLAKE2B_ROUND(a, b, c, d, e, f, g, h, i, j, k, l, n, o, p, q) \
    BLAKE2B_MIX(0, 4, 8, 12, a, b); \
    BLAKE2B_MIX(1, 5, 9, 13, c, d); \
    BLAKE2B_MIX(2, 6, 10, 14, e, f); \
    BLAKE2B_MIX(3, 7, 11, 15, g, h); \
    BLAKE2B_MIX(0, 5, 10, 15, i, j); \
    BLAKE2B_MIX(1, 6, 11, 12, k, l); \
    BLAKE2B_MIX(2, 7, 8, 13, n, o); \
    BLAKE2B_MIX(3, 4, 9, 14, p, q)

/* Mixes one block into the state. `total` counts the bytes up to its end; `last` marks the final block. */
static void blake2b_block(uint64_t state[8], const unsigned char *block, uint64_t total, int last)
{
    uint64_t m[16], v[16];
    int i;

    for (i = 0; i < 16; i++)
        m[i] = blake2b_load(block + 8 * i);
    for (i = 0; i < 8; i++) {
        v[i] = state[i];
        v[i + 8] = blake2b_start[i];
    }
    v[12] ^= total; /* the upper half of the 128-bit counter is always 0 here */
    if (last)
        v[14] = ~v[14];

    BLAKE2B_ROUND( 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15);
    BLAKE2B_ROUND(14, 10,  4,  8,  9, 15, 13,  6,  1, 12,  0,  2, 11,  7,  5,  3);
    BLAKE2B_ROUND(11,  8, 12,  0,  5,  2, 15, 13, 10, 14,  3,  6,  7,  1,  9,  4);
    BLAKE2B_ROUND( 7,  9,  3,  1, 13, 12, 11, 14,  2,  6,  5, 10,  4,  0, 15,  8);
    BLAKE2B_ROUND( 9,  0,  5,  7,  2,  4, 10, 15, 14,  1, 11, 12,  6,  8,  3, 13);
    BLAKE2B_ROUND( 2, 12,  6, 10,  0, 11,  8,  3,  4, 13,  7,  5, 15, 14,  1,  9);
    BLAKE2B_ROUND(12,  5,  1, 15, 14, 13,  4, 10,  0,  7,  6,  3,  9,  2,  8, 11);
    BLAKE2B_ROUND(13, 11,  7, 14, 12,  1,  3,  9,  5,  0, 15,  4,  8,  6,  2, 10);
    BLAKE2B_ROUND( 6, 15, 14,  9, 11,  3,  0,  8, 12,  2, 13,  7,  1,  4, 10,  5);
    BLAKE2B_ROUND(10,  2,  8,  4,  7,  6,  1,  5, 15, 11,  9, 14,  3, 12, 13,  0);
    BLAKE2B_ROUND( 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15);
    BLAKE2B_ROUND(14, 10,  4,  8,  9, 15, 13,  6,  1, 12,  0,  2, 11,  7,  5,  3);

    for (i = 0; i < 8; i++)
        state[i] ^= v[i] ^ v[i + 8];
}

/* Writes the `size` (1..64) byte hash of `length` bytes at `data` to `out`. */
static void blake2b(unsigned char *out, size_t size, const unsigned char *data, size_t length)
{
    unsigned char tail[BLAKE2B_BLOCK];
    uint64_t state[8], total = 0;
    size_t i;

    memcpy(state, blake2b_start, BLAKE2B_STATE);
    state[0] ^= UINT64_C(0x01010000) ^ (uint64_t)size; /* sequential, no key, size of the hash */

    while (length > BLAKE2B_BLOCK) {
        total += BLAKE2B_BLOCK;
        blake2b_block(state, data, total, 0);
        data += BLAKE2B_BLOCK;
        length -= BLAKE2B_BLOCK;
    }
    memset(tail, 0, sizeof tail);
    if (length)
        memcpy(tail, data, length);
    blake2b_block(state, tail, total + length, 1);

    for (i = 0; i < size; i++)
        out[i] = (unsigned char)(state[i / 8] >> (8 * (i % 8)));
}

#undef BLAKE2B_MIX
#undef BLAKE2B_ROUND

#endif
