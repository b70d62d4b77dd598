/*
 * scan.c - what ends a plain run in a JSON string, found many bytes at a time
 *
 * Story     64 bytes become words of bits, one bit a byte: with AVX-512 where the machine has it, else with AVX2, else
 *           with SSE2, which every x86-64 has. Far from any byte that means something, AVX2 and SSE2 look at 128 and 64
 *           bytes together and make no words (docs/data-path.md has figures). Elsewhere the plain twins do it all, byte
 *           by byte.
 */
#include "scan.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "check.h"

#define LAST_CONTROL 0x1F /* bytes up to this may not stand in a string unescaped */

const char *grid_scan_plain_twin(const char *at, const char *end, unsigned char *high)
{
    unsigned char seen = 0;
    for (; at < end; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte == '"' || byte == '\\' || byte <= LAST_CONTROL)
            break;
        seen |= byte;
    }
    *high |= seen;
    return at;
}

struct grid_scan_marks grid_scan_marks_twin(const char *at, size_t n)
{
    struct grid_scan_marks marks = {0, 0, 0, 0};
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)at[i];
        marks.quotes |= (uint64_t)(byte == '"') << i;
        marks.slashes |= (uint64_t)(byte == '\\') << i;
        marks.controls |= (uint64_t)(byte <= LAST_CONTROL) << i;
        marks.high |= (uint64_t)(byte >> 7) << i;
    }
    return marks;
}

#ifdef __SSE2__
static inline __m128i load_sixteen(const char *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

/* All ones in each byte that ends a plain run. */
static inline __m128i plain_stops(__m128i bytes)
{
    __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
    __m128i slash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
    __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(LAST_CONTROL)), bytes);
    return _mm_or_si128(_mm_or_si128(quote, slash), control);
}

/* Looks at 16 bytes: where the run ends among them, or NULL. */
static inline const char *plain_sixteen(const char *at, unsigned *high_bits)
{
    __m128i bytes = load_sixteen(at);
    unsigned stops = (unsigned)_mm_movemask_epi8(plain_stops(bytes));
    unsigned bits = (unsigned)_mm_movemask_epi8(bytes);
    if (!stops) {
        *high_bits |= bits;
        return NULL;
    }
    unsigned before = (unsigned)__builtin_ctz(stops);
    *high_bits |= bits & ((1u << before) - 1u);
    return at + before;
}

/* Passes 64 bytes at a time while none of them ends the run. */
static inline const char *far_narrow(const char *at, const char *end, unsigned *high_bits)
{
    __m128i seen = _mm_setzero_si128();
    for (; end - at >= 64; at += 64) {
        __m128i a = load_sixteen(at), b = load_sixteen(at + 16), c = load_sixteen(at + 32), d = load_sixteen(at + 48);
        __m128i stops =
            _mm_or_si128(_mm_or_si128(plain_stops(a), plain_stops(b)), _mm_or_si128(plain_stops(c), plain_stops(d)));
        if (_mm_movemask_epi8(stops))
            break;
        seen = _mm_or_si128(seen, _mm_or_si128(_mm_or_si128(a, b), _mm_or_si128(c, d)));
    }
    *high_bits |= (unsigned)_mm_movemask_epi8(seen);
    return at;
}

#define AVX2 __attribute__((target("avx2,bmi")))

AVX2 static inline __m256i load_thirty_two(const char *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

AVX2 static inline __m256i wide_stops(__m256i bytes)
{
    __m256i quote = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8('"'));
    __m256i slash = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8('\\'));
    __m256i control = _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, _mm256_set1_epi8(LAST_CONTROL)), bytes);
    return _mm256_or_si256(_mm256_or_si256(quote, slash), control);
}

/* The same, 128 bytes at a time. */
AVX2 static const char *far_wide(const char *at, const char *end, unsigned *high_bits)
{
    __m256i seen = _mm256_setzero_si256();
    for (; end - at >= 128; at += 128) {
        __m256i a = load_thirty_two(at), b = load_thirty_two(at + 32), c = load_thirty_two(at + 64),
                d = load_thirty_two(at + 96);
        __m256i stops = _mm256_or_si256(_mm256_or_si256(wide_stops(a), wide_stops(b)),
                                        _mm256_or_si256(wide_stops(c), wide_stops(d)));
        if (_mm256_movemask_epi8(stops))
            break;
        seen = _mm256_or_si256(seen, _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d)));
    }
    *high_bits |= (unsigned)_mm256_movemask_epi8(seen);
    return at;
}

static inline bool has_wide(void)
{
    /* loads and tests: the answers are found once, when the process starts */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi");
}

static inline const char *plain(const char *at, const char *end, unsigned char *high, bool wide)
{
    unsigned high_bits = 0;
    const char *stop = NULL;
    if (end - at >= (ptrdiff_t)GRID_SCAN_NEAR && !(stop = plain_sixteen(at, &high_bits))) {
        at += GRID_SCAN_NEAR;
        if (wide && end - at >= 128)
            at = far_wide(at, end, &high_bits);
        at = far_narrow(at, end, &high_bits);
        while (end - at >= (ptrdiff_t)GRID_SCAN_NEAR && !(stop = plain_sixteen(at, &high_bits)))
            at += GRID_SCAN_NEAR;
    }
    *high |= high_bits ? 0x80 : 0;
    return stop ? stop : grid_scan_plain_twin(at, end, high);
}

const char *grid_scan_plain_narrow(const char *at, const char *end, unsigned char *high)
{
    return plain(at, end, high, false);
}

const char *grid_scan_plain(const char *at, const char *end, unsigned char *high)
{
    return plain(at, end, high, has_wide());
}

static inline uint64_t four_masks(__m128i a, __m128i b, __m128i c, __m128i d)
{
    uint64_t low = (unsigned)_mm_movemask_epi8(a) | (unsigned)_mm_movemask_epi8(b) << 16;
    uint64_t high = (unsigned)_mm_movemask_epi8(c) | (unsigned)_mm_movemask_epi8(d) << 16;
    return low | high << 32;
}

/* One byte's places among 64. */
static inline uint64_t places_of(const __m128i bytes[4], char byte)
{
    __m128i like = _mm_set1_epi8(byte);
    return four_masks(_mm_cmpeq_epi8(bytes[0], like), _mm_cmpeq_epi8(bytes[1], like), _mm_cmpeq_epi8(bytes[2], like),
                      _mm_cmpeq_epi8(bytes[3], like));
}

static inline struct grid_scan_marks marks_wide(const char *at)
{
    const __m128i bytes[4] = {load_sixteen(at), load_sixteen(at + 16), load_sixteen(at + 32), load_sixteen(at + 48)};
    __m128i most = _mm_set1_epi8(LAST_CONTROL), control[4];
    for (int i = 0; i < 4; i++)
        control[i] = _mm_cmpeq_epi8(_mm_min_epu8(bytes[i], most), bytes[i]);
    return (struct grid_scan_marks){places_of(bytes, '"'), places_of(bytes, '\\'),
                                    four_masks(control[0], control[1], control[2], control[3]),
                                    four_masks(bytes[0], bytes[1], bytes[2], bytes[3])};
}

static inline uint64_t two_masks(int low, int high)
{
    return (uint32_t)low | (uint64_t)(uint32_t)high << 32;
}

/* Which of 64 bytes may stand behind a backslash, but for the quote and the letter u. A table by the low four bits
 * knows them all but r, which shares its place with b. */
AVX2 static inline uint64_t letters_wide(__m256i low, __m256i high)
{
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-1, -1, 'b', -1, 't', -1, 'f', -1, -1, -1, -1, -1, '\\', -1, 'n', '/'));
    const __m256i r = _mm256_set1_epi8('r');
    __m256i low_is =
        _mm256_or_si256(_mm256_cmpeq_epi8(_mm256_shuffle_epi8(table, low), low), _mm256_cmpeq_epi8(low, r));
    __m256i high_is =
        _mm256_or_si256(_mm256_cmpeq_epi8(_mm256_shuffle_epi8(table, high), high), _mm256_cmpeq_epi8(high, r));
    return two_masks(_mm256_movemask_epi8(low_is), _mm256_movemask_epi8(high_is));
}

/* What 64 bytes of a string's inside hold: a bit for each. */
struct inside {
    uint64_t quotes, slashes, controls, letters;
};

/* The bytes that end a pass: the closing quote, what may not stand there, what may not stand behind a backslash
 * (wrong). *cut: the first byte is escaped, and then: the first behind them is. It is all that a step knows of the one
 * before. */
static inline uint64_t inside_stops(struct inside in, uint64_t *cut, uint64_t *wrong)
{
    /* A byte is escaped when the run of backslashes ahead of it is odd. Adding a run's first bit to the run carries to
     * the place behind it; whether that place is even or odd, together with where the run began, tells its length. */
    const uint64_t even = 0x5555555555555555u;
    uint64_t slashes = in.slashes & ~*cut, follows = slashes << 1 | *cut, begins_odd = slashes & ~even & ~follows;
    uint64_t behind;
    bool over = __builtin_add_overflow(begins_odd, slashes, &behind);
    uint64_t escaped = (even ^ behind << 1) & follows;
    *cut = over;
    *wrong = escaped & ~(in.letters | in.quotes);
    return in.controls | (in.quotes & ~escaped) | *wrong;
}

/* Where a pass ends among 64 bytes; of a wrong escape it is the backslash. */
static inline const char *inside_end(const char *at, uint64_t stops, uint64_t wrong)
{
    size_t stop = (size_t)__builtin_ctzll(stops);
    return at + stop - (wrong >> stop & 1);
}

static inline uint64_t below_first(uint64_t stops)
{
    return (stops & -stops) - 1;
}

AVX2 static inline struct inside inside_of_wide(__m256i low, __m256i high)
{
    const __m256i quote = _mm256_set1_epi8('"'), slash = _mm256_set1_epi8('\\');
    const __m256i control = _mm256_set1_epi8(LAST_CONTROL);
    return (struct inside){two_masks(_mm256_movemask_epi8(_mm256_cmpeq_epi8(low, quote)),
                                     _mm256_movemask_epi8(_mm256_cmpeq_epi8(high, quote))),
                           two_masks(_mm256_movemask_epi8(_mm256_cmpeq_epi8(low, slash)),
                                     _mm256_movemask_epi8(_mm256_cmpeq_epi8(high, slash))),
                           two_masks(_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(low, control), low)),
                                     _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(high, control), high))),
                           letters_wide(low, high)};
}

AVX2 static const char *inside_wide(const char *at, const char *end, bool *high, bool *escaped)
{
    __m256i seen = _mm256_setzero_si256();
    unsigned far_high = 0;
    uint64_t cut = 0, stops = 0, wrong = 0, met = 0, last_high = 0;
    at = far_wide(at, end, &far_high);
    for (; end - at >= (ptrdiff_t)GRID_SCAN_WIDE; at += GRID_SCAN_WIDE) {
        __m256i a = load_thirty_two(at), b = load_thirty_two(at + 32);
        if (cut || _mm256_movemask_epi8(_mm256_or_si256(wide_stops(a), wide_stops(b)))) {
            struct inside in = inside_of_wide(a, b);
            met |= cut;
            stops = inside_stops(in, &cut, &wrong);
            if (stops) {
                met |= in.slashes & below_first(stops);
                last_high = two_masks(_mm256_movemask_epi8(a), _mm256_movemask_epi8(b)) & below_first(stops);
                break;
            }
            met |= in.slashes;
        }
        seen = _mm256_or_si256(seen, _mm256_or_si256(a, b));
    }
    *escaped |= met != 0;
    *high |= (far_high | (unsigned)_mm256_movemask_epi8(seen) | last_high) != 0;
    return stops ? inside_end(at, stops, wrong) : at - cut;
}

#define AVX512 __attribute__((target("avx512bw,bmi")))

AVX512 static inline uint64_t letters_widest(__m512i bytes)
{
    const __m512i table =
        _mm512_broadcast_i32x4(_mm_setr_epi8(-1, -1, 'b', -1, 't', -1, 'f', -1, -1, -1, -1, -1, '\\', -1, 'n', '/'));
    return _mm512_cmpeq_epi8_mask(_mm512_shuffle_epi8(table, bytes), bytes) |
           _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('r'));
}

AVX512 static const char *inside_widest(const char *at, const char *end, bool *high, bool *escaped)
{
    const __m512i quote = _mm512_set1_epi8('"'), slash = _mm512_set1_epi8('\\');
    const __m512i control = _mm512_set1_epi8(LAST_CONTROL);
    __m512i seen = _mm512_setzero_si512();
    uint64_t cut = 0, stops = 0, wrong = 0, met = 0, last_high = 0;
    for (; end - at >= (ptrdiff_t)GRID_SCAN_WIDE; at += GRID_SCAN_WIDE) {
        __m512i bytes = _mm512_loadu_si512(at);
        struct inside in = {_mm512_cmpeq_epi8_mask(bytes, quote), _mm512_cmpeq_epi8_mask(bytes, slash),
                            _mm512_cmple_epu8_mask(bytes, control), 0};
        if (in.quotes | in.slashes | in.controls | cut) {
            in.letters = letters_widest(bytes);
            met |= cut;
            stops = inside_stops(in, &cut, &wrong);
            if (stops) {
                met |= in.slashes & below_first(stops);
                last_high = _mm512_movepi8_mask(bytes) & below_first(stops);
                break;
            }
            met |= in.slashes;
        }
        seen = _mm512_or_si512(seen, bytes);
    }
    *escaped |= met != 0;
    *high |= (_mm512_movepi8_mask(seen) | last_high) != 0;
    return stops ? inside_end(at, stops, wrong) : at - cut;
}

static inline bool has_widest(void)
{
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("bmi");
}

static inline const char *inside_narrow(const char *at, const char *end, bool *high)
{
    unsigned high_bits = 0;
    at = far_narrow(at, end, &high_bits);
    *high |= high_bits != 0;
    return at;
}

const char *grid_scan_inside(const char *at, const char *end, bool *high, bool *escaped)
{
    if (has_widest())
        return inside_widest(at, end, high, escaped);
    if (has_wide())
        return inside_wide(at, end, high, escaped);
    return inside_narrow(at, end, high);
}

const char *grid_scan_inside_by(size_t width, const char *at, const char *end, bool *high, bool *escaped)
{
    if (width == 64)
        return has_widest() ? inside_widest(at, end, high, escaped) : NULL;
    if (width == 32)
        return has_wide() ? inside_wide(at, end, high, escaped) : NULL;
    return inside_narrow(at, end, high);
}

const char *grid_scan_near(const char *at, unsigned char *high)
{
    unsigned high_bits = 0;
    const char *stop = plain_sixteen(at, &high_bits);
    *high |= high_bits ? 0x80 : 0;
    return stop;
}
#else
const char *grid_scan_plain_narrow(const char *at, const char *end, unsigned char *high)
{
    return grid_scan_plain_twin(at, end, high);
}

const char *grid_scan_plain(const char *at, const char *end, unsigned char *high)
{
    return grid_scan_plain_twin(at, end, high);
}

static inline struct grid_scan_marks marks_wide(const char *at)
{
    return grid_scan_marks_twin(at, GRID_SCAN_WIDE);
}

const char *grid_scan_inside(const char *at, const char *end, bool *high, bool *escaped)
{
    (void)end;
    (void)high;
    (void)escaped;
    return at;
}

const char *grid_scan_inside_by(size_t width, const char *at, const char *end, bool *high, bool *escaped)
{
    return width == 16 ? grid_scan_inside(at, end, high, escaped) : NULL;
}

const char *grid_scan_near(const char *at, unsigned char *high)
{
    const char *stop = grid_scan_plain_twin(at, at + GRID_SCAN_NEAR, high);
    return stop < at + GRID_SCAN_NEAR ? stop : NULL;
}
#endif

struct grid_scan_marks grid_scan_marks(const char *at, size_t n)
{
    char room[GRID_SCAN_WIDE];
    if (GRID_LIKELY(n >= GRID_SCAN_WIDE))
        return marks_wide(at);
    memset(room, 'a', sizeof room); /* the end of a slice; what is behind it is not ours to read */
    memcpy(room, at, n);
    return marks_wide(room);
}
