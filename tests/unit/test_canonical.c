/*
 * test_canonical.c - values in one spelling: members in order against a naive sort
 */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/canonical.h"

static struct grid_canonical_room room;

#define RANDOM_MEMBERS 700
#define RANDOM_NAME 64

struct naive {
    unsigned char name[RANDOM_NAME];
    size_t len, value;
};

static uint64_t dice;

static size_t roll(size_t n)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (size_t)(dice >> 11) % n;
}

static int naive_order(const void *a, const void *b)
{
    const struct naive *left = a, *right = b;
    int order = memcmp(left->name, right->name, left->len < right->len ? left->len : right->len);
    if (order == 0)
        order = (left->len > right->len) - (left->len < right->len);
    return order ? order : (left->value > right->value) - (left->value < right->value);
}

/* A member with its name in least escapes, or in the most. */
static size_t spell(char *at, size_t room_bytes, const struct naive *member, bool least)
{
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    size_t n = 0;
    at[n++] = '"';
    for (size_t i = 0; i < member->len; i++) {
        unsigned char byte = member->name[i];
        const char *found = byte ? strchr(shorts, byte) : NULL;
        if (byte >= 0x80 || (least && byte >= ' ' && byte != '"' && byte != '\\'))
            at[n++] = (char)byte;
        else if (least && found && (found - shorts) % 2 == 0)
            n += (size_t)snprintf(at + n, room_bytes - n, "\\%c", found[1]);
        else
            n += (size_t)snprintf(at + n, room_bytes - n, "\\u%04x", byte);
    }
    return n + (size_t)snprintf(at + n, room_bytes - n, "\":%zu", member->value);
}

/* Names from a small stock of bytes, so that many are equal or begin alike; each at most a few words long. */
static size_t random_members(struct naive *members)
{
    static const char stocks[][9] = {"aab", "abcdefg", "a\x01\"\\\n\t ", "!\"#\x1f z"};
    const char *stock = stocks[roll(4)];
    size_t n = roll(3) ? roll(30) : roll(RANDOM_MEMBERS), prefix = roll(3) ? 0 : roll(30), most = 1 + roll(24);
    for (size_t i = 0; i < n; i++) {
        members[i].len = prefix + roll(most);
        members[i].value = i;
        for (size_t k = 0; k < members[i].len; k++)
            members[i].name[k] = (unsigned char)(k < prefix ? 'p'
                                                 : roll(20) ? (unsigned char)stock[roll(strlen(stock))]
                                                            : 0);
        if (roll(8) == 0 && members[i].len > prefix + 1)
            memcpy(members[i].name + members[i].len - 2, "\xC3\xA9", 2);
    }
    if (roll(4) == 0)
        qsort(members, n, sizeof *members, naive_order);
    for (size_t i = 0; i < n; i++)
        members[i].value = i;
    return n;
}

static void random_objects(void **state)
{
    (void)state;
    static struct naive members[RANDOM_MEMBERS];
    static char sent[200000], wanted[200000];
    const char *fixed = getenv("GRID_TEST_SEED");
    uint64_t seed = fixed ? strtoull(fixed, NULL, 10) : (uint64_t)time(NULL);
    dice = seed * 2 + 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 3000; round++) {
        size_t n = random_members(members), bytes = 1, len = 1, got;
        bool escapes = roll(2);
        sent[0] = wanted[0] = '{';
        for (size_t i = 0; i < n; i++) {
            bytes += spell(sent + bytes, sizeof sent - bytes, &members[i], escapes);
            sent[bytes++] = i + 1 < n ? ',' : '}';
        }
        if (n == 0)
            sent[bytes++] = '}';
        if (bytes > GRID_CANONICAL_MAX_BYTES)
            continue;
        qsort(members, n, sizeof *members, naive_order);
        for (size_t i = 0; i < n; i++) {
            if (i + 1 < n && members[i].len == members[i + 1].len &&
                memcmp(members[i].name, members[i + 1].name, members[i].len) == 0)
                continue;
            if (len > 1)
                wanted[len++] = ',';
            len += spell(wanted + len, sizeof wanted - len, &members[i], true);
        }
        wanted[len++] = '}';
        size_t cut = roll(bytes);
        struct grid_str slices[] = {{sent, cut}, {sent + cut, bytes - cut}};
        struct grid_json json;
        grid_json_init(&json, slices, 2);
        assert_int_equal(grid_canonical_write(&room, &json, &got), GRID_JSON_FINE);
        assert_int_equal(got, len);
        assert_memory_equal(room.out, wanted, len);
    }
}

/* A value may be read from where its canonical form is written, as the arguments of calls are. */
static void read_where_it_is_written(void **state)
{
    (void)state;
    static const char sent[] = "{ \"b\" : [ 1 , {\"y\":\"\\u0001\\/\",\"x\":\"\\u00e9\"} ] , \"a\":\"\\\"\", "
                               "\"b\":[true,{\"d\":0,\"c\":\"\"}]}";
    static const char wanted[] = "{\"a\":\"\\\"\",\"b\":[true,{\"c\":\"\",\"d\":0}]}";
    struct grid_str text = {room.out, sizeof sent - 1};
    struct grid_json json;
    size_t len;
    memcpy(room.out, sent, sizeof sent);
    grid_json_init(&json, &text, 1);
    assert_int_equal(grid_canonical_write(&room, &json, &len), GRID_JSON_FINE);
    assert_true(grid_json_finish(&json));
    assert_int_equal(len, sizeof wanted - 1);
    assert_memory_equal(room.out, wanted, len);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_objects),
        cmocka_unit_test(read_where_it_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
