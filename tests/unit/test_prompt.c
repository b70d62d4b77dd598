/*
 * test_prompt.c - what each API's body becomes: the stream in readable form, and why a body is refused
 *
 * Bodies are written with ' for " (and \' for \"). In the expected stream 0x1F is |, a digest is D, a decoded name
 * stands bare.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/prompt.h"

static struct grid_canonical_room room;
static struct grid_lex_memo memo;
static struct grid_prompt prompt;

static void add(char *out, size_t cap, const char *bytes, size_t len)
{
    size_t used = strlen(out);
    for (size_t i = 0; i < len && used + 1 < cap; i++)
        out[used++] = bytes[i] == 0x1F ? '|' : bytes[i] == '"' ? '\'' : bytes[i];
    out[used] = '\0';
}

/* A tag, with the length inside the ready-made user role left out, as names stand bare. */
static void add_tag(char *out, size_t cap, const struct grid_tag *tag)
{
    if (tag->len > 13 && memcmp(tag->text + 5, "\x04\0\0\0\0\0\0\0user", 12) == 0) {
        add(out, cap, tag->text, 5);
        add(out, cap, tag->text + 13, tag->len - 13u);
    } else {
        add(out, cap, tag->text, tag->len);
    }
}

static void add_raw(char *out, size_t cap, struct grid_json_raw raw)
{
    struct grid_str run;
    while (grid_json_raw_next(&raw, &run))
        add(out, cap, run.ptr, run.len);
}

static void render(const struct grid_piece *piece, char *out, size_t cap)
{
    struct grid_json_decode name = piece->name;
    struct grid_json_raw inside;
    struct grid_str run;
    add_tag(out, cap, piece->tag);
    switch (piece->kind) {
    case GRID_PIECE_LITERAL:
        return;
    case GRID_PIECE_CANONICAL:
        add(out, cap, piece->text.ptr, piece->text.len);
        break;
    case GRID_PIECE_NAME:
        inside = *piece->raw;
        inside.from.at++;
        inside.bytes -= 2;
        add_raw(out, cap, inside);
        break;
    case GRID_PIECE_DECODED:
        while (grid_json_decode_next(&name, &run))
            add(out, cap, run.ptr, run.len);
        break;
    case GRID_PIECE_RAW:
        add_raw(out, cap, *piece->raw);
        break;
    case GRID_PIECE_DIGEST:
        add(out, cap, "#D", 2);
        break;
    }
    add(out, cap, "\x1F", 1);
}

/* The stream of a body, or the name of the reason in angle brackets. */
static const char *stream(enum grid_api api, const char *text)
{
    static char out[4096];
    static char body[4096];
    const struct grid_piece *piece;
    size_t len = strlen(text);
    assert_true(len < sizeof body);
    for (size_t i = 0; i <= len; i++)
        body[i] = text[i] == '\'' ? '"' : text[i];
    struct grid_str slice = {body, len};
    memset(&memo, 0, sizeof memo);
    grid_prompt_open(&prompt, api, &slice, 1, false, &memo, &room);
    do {
        out[0] = '\0';
        while ((piece = grid_prompt_next(&prompt)))
            render(piece, out, sizeof out);
    } while (grid_prompt_close(&prompt));
    static const char *const names[] = {
#define NAME(id, name) "<" name ">",
        GRID_REASONS(NAME)
#undef NAME
    };
    return prompt.reason == GRID_REASON_NONE ? out : names[prompt.reason];
}

struct pair {
    const char *body, *expected;
};

static void check(enum grid_api api, const struct pair *pairs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_string_equal(stream(api, pairs[i].body), pairs[i].expected);
}
#define CHECK(api, pairs) check(api, pairs, sizeof(pairs) / sizeof((pairs)[0]))

static void chat(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {"{'messages':[]}", ""},
        {"{'messages':[{'role':'user','content':'hi'}]}", "role|user|text|'hi'|"},
        {"{'messages':[{'content':'hi','x':[1],'role':'us\\u0065r'}]}", "role|user|text|'hi'|"},
        {"{'messages':[{'role':'user','content':[{'type':'text','text':'hi'},{'refusal':'no','type':'refusal'}]}]}",
         "role|user|text|'hi'|text|'no'|"},
        {"{'messages':[{'role':'a','content':null},{'role':'b'}],'tools':[{'b': 1 ,'a':2e5}],'cache_salt':'s'}",
         "tools|[{'a':2e5,'b':1}]|role|a|role|b|"},
        {"{'documents':[],'chat_template_kwargs':{'z':[true ,null],'b':'\\u0041\\/\\u000a\\u0001'},'tools':null,"
         "'chat_template':'x\\u0041','messages':[]}",
         "chat_template|'x\\u0041'|chat_template_kwargs|{'b':'A/\\n\\u0001','z':[true,null]}|documents|[]|"},
        {"{'messages':[{'role':'a','tool_calls':[{'id':'1','function':{'arguments':'{\\'b\\': "
         "1,\\'a\\':\\'x\\'}','name':'f'}},"
         "{'custom':{'name':'g','input':'free text'}},{'function':{'name':'h','arguments':{'b':1}}}]}]}",
         "role|a|call|f|arguments|{'a':'x','b':1}|call|g|arguments|'free text'|call|h|arguments|{'b':1}|"},
        {"{'messages':[{'role':'u','content':[{'type':'image_url','image_url':{'detail':'low','url':'data:x'}},"
         "{'type':'file','file':{'file_id':'f'}},{'type':'image_embeds','image_embeds':{'a':1}},"
         "{'type':'video_url','uuid':'u'},{'type':'input_audio','input_audio':{'data':'d'},'uuid':5}]}]}",
         "role|u|image_url|#D|file|#D|image_embeds|#D|video_url|#D|input_audio|#D|"},
    };
    CHECK(GRID_API_CHAT, pairs);
}

static void chat_refusals(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {"", "<empty>"},
        {" ", "<not_json>"},
        {"{'messages':[]}x", "<not_json>"},
        {"[{'messages':[]}]", "<not_object>"},
        {"{'messages':null}", "<missing_field>"},
        {"{'messages':{}}", "<bad_type>"},
        {"{'messages':[],'messages':[]}", "<duplicate_field>"},
        {"{'model':'a','model':'b','messages':[]}", "<duplicate_field>"},
        {"{'messages':[],'seed':1,'seed':2}", ""},
        {"{'messages':[{'role':'a','role':'a'}]}", "<duplicate_field>"},
        {"{'messages':[{'content':'a'}]}", "<missing_field>"},
        {"{'messages':[{'role':'a','content':5}]}", "<bad_type>"},
        {"{'messages':['a']}", "<bad_type>"},
        {"{'messages':[{'role':'\\ud800'}]}", "<bad_utf8>"},
        {"{'messages':[{'role':'a','content':'\\ud800'}]}", "role|a|text|'\\ud800'|"},
        {"{'messages':[],'tools':['\\ud800']}", "<bad_utf8>"},
        {"{'messages':[],'cache_salt':1}", "<bad_type>"},
        {"{'messages':[{'role':'a','content':[{'type':'hologram'}]}]}", "<unknown_part>"},
        {"{'messages':[{'role':'a','content':[{'type':'input_text','text':'a'}]}]}", "<unknown_part>"},
        {"{'messages':[{'role':'a','content':[{'text':'a'}]}]}", "<missing_field>"},
        {"{'messages':[{'role':'a','content':[{'type':'text'}]}]}", "<missing_field>"},
        {"{'messages':[{'role':'a','content':[{'type':'text','text':'a','refusal':1,'refusal':2}]}]}",
         "<duplicate_field>"},
        {"{'messages':[{'role':'a','content':[{'type':'image_url','image_url':'x'}]}]}", "<bad_type>"},
        {"{'messages':[{'role':'a','content':[{'type':'image_url','image_url':{}}]}]}", "<missing_field>"},
        {"{'messages':[{'role':'a','content':[{'type':'image_url','image_url':{'url':'a','url':'b'}}]}]}",
         "<duplicate_field>"},
        {"{'messages':[{'role':'a','tool_calls':[{'id':'x'}]}]}", "<unknown_part>"},
        {"{'messages':[{'role':'a','tool_calls':[{'function':{}}]}]}", "<missing_field>"},
        {"{'messages':[{'role':'a','tool_calls':[{'function':{'name':'f','arguments':null}}]}]}", "role|a|call|f|"},
    };
    CHECK(GRID_API_CHAT, pairs);
}

static void completions(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {"{'prompt':'p'}", "text|'p'|"},          {"{'prompt':['p'],'suffix':1}", "text|'p'|"},
        {"{'prompt':[]}", "<many_prompts>"},      {"{'prompt':['a','b']}", "<many_prompts>"},
        {"{'prompt':[1,2]}", "<token_array>"},    {"{'prompt':[[1],[2]]}", "<token_array>"},
        {"{'prompt':null}", "<missing_field>"},   {"{}", "<missing_field>"},
        {"{'prompt':5}", "<bad_type>"},           {"{'prompt':{}}", "<bad_type>"},
        {"{'prompt':['a',1]}", "<many_prompts>"}, {"{'prompt':[null]}", "<bad_type>"},
    };
    CHECK(GRID_API_COMPLETIONS, pairs);
}

static void messages(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {"{'messages':[{'role':'user','content':'a'}],'system':'s','tools':[]}",
         "tools|[]|text|'s'|role|user|text|'a'|"},
        {"{'messages':[],'system':[{'type':'text','text':'x-anthropic-\\u0062illing-header: "
         "1'},{'type':'text','text':'s'}]}",
         "text|'s'|"},
        {"{'messages':[],'system':'x-anthropic-billing-header'}", "text|'x-anthropic-billing-header'|"},
        {"{'messages':[{'role':'u','content':[{'type':'thinking','thinking':'t'},{'type':'tool_use','name':'f','input':"
         "{'b':1,'a':2}},"
         "{'type':'tool_result','content':[{'type':'text','text':'r'},{'type':'image','source':{'url':'u'}}]},"
         "{'type':'tool_result'},{'type':'tool_result','content':'r'}]}]}",
         "role|u|call|f|arguments|{'a':2,'b':1}|result||text|'r'|image|#D|end||result||result||text|'r'|end||"},
        {"{'messages':[{'role':'u','content':null}]}", "role|u|"},
        {"{'messages':[{'role':'u'}]}", "<missing_field>"},
        {"{'messages':[{'role':'u','content':[{'type':'image'}]}]}", "<missing_field>"},
        {"{'messages':[{'role':'u','content':[{'type':'server_tool_use'}]}]}", "<unknown_part>"},
        {"{'messages':[],'cache_salt':[]}", "<bad_type>"},
    };
    CHECK(GRID_API_MESSAGES, pairs);
}

static void responses(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {"{'input':'a','instructions':'i','tools':[{}]}", "tools|[{}]|instructions|'i'|role|user|text|'a'|"},
        {"{'input':[{'role':'user','content':'a'}]}", "role|user|text|'a'|"},
        {"{'input':[{'type':'message','role':'user','content':[{'type':'input_text','text':'a'}]}]}",
         "role|user|text|'a'|"},
        {"{'input':[{'type':'function_call','call_id':'c','name':'f','arguments':'[ 1 "
         "]'},{'type':'reasoning','summary':[]},"
         "{'type':'function_call_output','output':'o'},{'type':'function_call_output','output':{'b':1,'a':2}},"
         "{'type':'custom_tool_call','name':'g','input':'x'},{'type':'custom_tool_call_output','output':'o'}]}",
         "call|f|arguments|[1]|result||text|'o'|result||text|{'a':2,'b':1}|call|g|arguments|'x'|result||text|'o'|"},
        {"{'input':[{'role':'u','content':[{'type':'input_image','image_url':'u'},{'type':'input_file','file_url':'f','"
         "file_id':null},"
         "{'type':'input_audio','input_audio':{'data':'d'}}]}]}",
         "role|u|input_image|#D|input_file|#D|input_audio|#D|"},
        {"{'input':'a','previous_response_id':'x'}", "<stored_state>"},
        {"{'input':'a','conversation':{'id':'x'}}", "<stored_state>"},
        {"{'input':'a','conversation':null,'previous_response_id':null,'prompt':null}", "role|user|text|'a'|"},
        {"{'input':'a','prompt':{'id':'p'}}", "<prompt_template>"},
        {"{'instructions':'i'}", "<missing_field>"},
        {"{'input':[{'type':'item_reference','id':'x'}]}", "<unknown_part>"},
        {"{'input':[{'type':'function_call_output'}]}", "<missing_field>"},
        {"{'input':[{'type':'a type that is longer than all that are known','role':'u','content':'a'}]}",
         "<unknown_part>"},
        {"{'input':5}", "<bad_type>"},
    };
    CHECK(GRID_API_RESPONSES, pairs);
}

static void canonical_values(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {"{'messages':[],'tools':{'b':1,'a':{'d':[],'c':{}},'\\u0062':2}}", "tools|{'a':{'c':{},'d':[]},'b':2}|"},
        /* UTF-8 order, not UTF-16: U+FF5E before U+1F600 */
        {"{'messages':[],'tools':{'\\ud83d\\ude00':1,'\\uff5e':2}}", "tools|{'\xEF\xBD\x9E':2,'\xF0\x9F\x98\x80':1}|"},
        /* an escaped name sorts by its decoded byte: 0x01 before 0x22 before 0x41 */
        {"{'messages':[],'tools':{'A':1,'\\u0022':2,'\\u0001':3,'':4}}", "tools|{'':4,'\\u0001':3,'\\'':2,'A':1}|"},
        {"{'messages':[],'tools':{'ab':1,'a':2,'b':3,'a':4,'aa':[1,{'z':1,'y':2}]}}",
         "tools|{'a':4,'aa':[1,{'y':2,'z':1}],'ab':1,'b':3}|"},
        {"{'messages':[],'tools': 1.0e2 }", "tools|1.0e2|"},
    };
    CHECK(GRID_API_CHAT, pairs);
}

/* 128 levels are read, the 129th is not; over 16 KiB nesting does not matter. */
static void canonical_depth(void **state)
{
    (void)state;
    static const char head[] = "{'messages':[],'tools':";
    char body[600];
    for (size_t depth = 127; depth <= 130; depth++) {
        char *at = body + sizeof head - 1;
        memcpy(body, head, sizeof head);
        memset(at, '[', depth);
        memset(at + depth, ']', depth);
        memcpy(at + 2 * depth, "}", 2);
        assert_int_equal(strcmp(stream(GRID_API_CHAT, body), "<too_deep>") == 0, depth > 128);
    }
}

static void models(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        bool cut;
        const char *model; /* NULL: none */
    } rows[] = {
        {"{\"model\":\"m\"}", false, "m"},
        {"{\"model\":\"\\u006d\",\"model\":\"n\"}", false, "n"},
        {"{\"model\":5}", false, NULL},
        {"{\"model\":\"m\",\"model\":null}", false, NULL},
        {"{\"model\":\"m\"}x", false, NULL},
        {"{\"model\":\"m\",\"messages\":[", false, NULL},
        {"{\"model\":\"m\",\"messages\":[", true, "m"},
        {"{\"model\":\"m", true, NULL},
        {"{\"model\":\"m\",]", true, NULL},
        {"{\"a\":\"\xFF\",\"model\":\"m\"}", false, "m"},
        {"[{\"model\":\"m\"}]", false, NULL},
        {"", true, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct grid_str slice = grid_str_of(rows[i].body);
        for (int api = GRID_API_NONE; api <= GRID_API_RESPONSES; api++) {
            memset(&memo, 0, sizeof memo);
            grid_prompt_open(&prompt, (enum grid_api)api, &slice, 1, rows[i].cut, &memo, &room);
            while (grid_prompt_next(&prompt)) {
            }
            (void)grid_prompt_close(&prompt);
            assert_int_equal(prompt.has_model, rows[i].model != NULL);
            if (rows[i].model)
                assert_true(grid_str_eq((struct grid_str){prompt.model, prompt.model_len}, grid_str_of(rows[i].model)));
            if (rows[i].cut)
                assert_int_equal(prompt.reason, GRID_REASON_BODY_TOO_LARGE);
        }
    }
}

/* A model of 256 bytes is itself; a longer one is a model that no name equals. */
static void long_models(void **state)
{
    (void)state;
    char body[600], name[301];
    for (size_t len = 255; len <= 300; len++) {
        memset(name, 'm', len);
        name[len] = '\0';
        (void)snprintf(body, sizeof body, "{\"model\":\"%s\"}", name);
        struct grid_str slice = grid_str_of(body);
        memset(&memo, 0, sizeof memo);
        grid_prompt_open(&prompt, GRID_API_NONE, &slice, 1, false, &memo, &room);
        assert_true(prompt.has_model);
        assert_int_equal(prompt.model_len, len <= 256 ? len : 257);
        assert_int_equal(len <= 256, grid_str_eq((struct grid_str){prompt.model, prompt.model_len}, grid_str_of(name)));
    }
}

/* ---- canonical order against a naive sort -------------------------------------------------------------------------
 * */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat),
        cmocka_unit_test(chat_refusals),
        cmocka_unit_test(completions),
        cmocka_unit_test(messages),
        cmocka_unit_test(responses),
        cmocka_unit_test(canonical_values),
        cmocka_unit_test(canonical_depth),
        cmocka_unit_test(models),
        cmocka_unit_test(long_models),
        cmocka_unit_test(random_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
