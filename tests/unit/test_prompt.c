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
#include <string.h>

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

static void append(char *out, size_t cap, const char *text)
{
    add(out, cap, text, strlen(text));
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

/* behaviour.md O.5, O.30: on every image, audio, video or file part of every API, alone and ahead of the payload. */
static void uuid_everywhere(void **state)
{
    (void)state;
    static const struct pair chat_pairs[] = {
        {"{'messages':[{'role':'u','content':[{'type':'image_url','uuid':'u'},{'type':'video_url','uuid':'u'},"
         "{'type':'audio_url','uuid':'u'},{'type':'input_audio','uuid':'u'},{'type':'file','uuid':'u'},"
         "{'type':'image_embeds','uuid':'u'}]}]}",
         "role|u|image_url|#D|video_url|#D|audio_url|#D|input_audio|#D|file|#D|image_embeds|#D|"},
        {"{'messages':[{'role':'u','content':[{'type':'image_url','image_url':5,'uuid':'u'}]}]}",
         "role|u|image_url|#D|"},
        {"{'messages':[{'role':'u','content':[{'type':'image_url','uuid':null}]}]}", "<missing_field>"},
        {"{'messages':[{'role':'u','content':[{'type':'image_url','uuid':7}]}]}", "<missing_field>"},
        {"{'messages':[{'role':'u','content':[{'type':'image_embeds','image_embeds':null}]}]}", "<missing_field>"},
        {"{'messages':[{'role':'u','content':[{'type':'text','uuid':'u'}]}]}", "<missing_field>"},
    };
    static const struct pair block_pairs[] = {
        {"{'messages':[{'role':'u','content':[{'type':'image','uuid':'u'},{'type':'document','uuid':'u'}]}]}",
         "role|u|image|#D|document|#D|"},
        {"{'messages':[{'role':'u','content':[{'type':'document','source':{'type':'text','data':'d'}},"
         "{'type':'image','source':{'file_id':'f'}},{'type':'image','source':{'data':null,'url':'u'}}]}]}",
         "role|u|document|#D|image|#D|image|#D|"},
        {"{'messages':[{'role':'u','content':[{'type':'document','source':{'type':'content','content':[]}}]}]}",
         "<missing_field>"},
        {"{'messages':[{'role':'u','content':[{'type':'image','source':{'data':5}}]}]}", "<bad_type>"},
    };
    static const struct pair item_pairs[] = {
        {"{'input':[{'role':'u','content':[{'type':'input_image','uuid':'u'},{'type':'input_file','uuid':'u'},"
         "{'type':'input_audio','uuid':'u'}]}]}",
         "role|u|input_image|#D|input_file|#D|input_audio|#D|"},
        {"{'input':[{'role':'u','content':[{'type':'input_image','file_id':'f'},{'type':'input_file','file_data':'d'},"
         "{'type':'refusal','refusal':'no'},{'type':'output_text','text':'t'}]}]}",
         "role|u|input_image|#D|input_file|#D|text|'no'|text|'t'|"},
        {"{'input':[{'role':'u','content':[{'type':'input_image'}]}]}", "<missing_field>"},
    };
    CHECK(GRID_API_CHAT, chat_pairs);
    CHECK(GRID_API_MESSAGES, block_pairs);
    CHECK(GRID_API_RESPONSES, item_pairs);
}

/* What stands behind the list in the body may belong ahead of it, or undo it. */
static void behind_the_list(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {"{'messages':[{'role':'a'}],'tools':[1],'chat_template':'t'}", "chat_template|'t'|tools|[1]|role|a|"},
        {"{'tools':[1],'messages':[{'role':'a'}],'documents':[2]}", "documents|[2]|tools|[1]|role|a|"},
        {"{'messages':[{'role':'a'}],'tools':null,'model':'m','cache_salt':'s'}", "role|a|"},
        {"{'messages':[{'role':5}],'tools':[1]}", "<bad_type>"},
        {"{'messages':[{'role':5}],'tools':['\\ud800']}", "<bad_utf8>"},
        {"{'messages':[{'role':5}],'messages':[]}", "<duplicate_field>"},
        {"{'messages':[5],'cache_salt':5}", "<bad_type>"},
        {"{'messages':[5,{'role':'a'}]}", "<bad_type>"},
        {"{'messages':[5,{'role':'a'}]", "<not_json>"},
        {"{'messages':[{'role':'a'},],'x':1}", "<not_json>"},
        {"{'messages':[{'role':'a'}],'x':1,}", "<not_json>"},
        {"{'tools':['\\ud800'],'messages':[{'role':'a'}],'x':[}", "<not_json>"},
        {"{'messages':[{'role':5}],'model':'\\ud800'}", "<bad_utf8>"},
        {"{'messages':null,'messages':[{'role':'a'}]}", "<duplicate_field>"},
    };
    static const struct pair stored[] = {
        {"{'input':[{'role':5}],'previous_response_id':'x'}", "<stored_state>"},
        {"{'input':[{'role':'a','content':'b'}],'instructions':'i'}", "instructions|'i'|role|a|text|'b'|"},
    };
    CHECK(GRID_API_CHAT, pairs);
    CHECK(GRID_API_RESPONSES, stored);
}

/* Objects of one list whose members change places, so that guessed names are wrong. */
static void members_in_any_order(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {"{'messages':[{'role':'a','content':'1'},{'content':'2','role':'b'},{'x':0,'role':'c','content':'3'},"
         "{'role':'d','name':'n','content':'4'},{'role':'e'},{'role':'f','content':'6','content_':'7','rolex':'8'}]}",
         "role|a|text|'1'|role|b|text|'2'|role|c|text|'3'|role|d|text|'4'|role|e|role|f|text|'6'|"},
        {"{'messages':[{'role':'a','content':'1'},{'role':'b','content':'2','role':'c'}]}", "<duplicate_field>"},
        {"{'messages':[{'role':'a','content':'1'},{'role':'b','role':'c'}]}", "<duplicate_field>"},
        {"{'messages':[ { 'role' : 'a' , 'content' : '1' } , { 'role': 'b', 'content': '2'}]}",
         "role|a|text|'1'|role|b|text|'2'|"},
    };
    CHECK(GRID_API_CHAT, pairs);
}

/* However deep results lie in results, the stream closes each. */
static void results_in_results(void **state)
{
    (void)state;
    static char body[4096], wanted[4096];
    for (size_t depth = 1; depth <= 40; depth++) {
        body[0] = wanted[0] = '\0';
        append(body, sizeof body, "{'messages':[{'role':'u','content':[");
        append(wanted, sizeof wanted, "role|u|");
        for (size_t i = 0; i < depth; i++) {
            append(body, sizeof body, i % 2 ? "{'content':[" : "{'type':'tool_result','content':[");
            append(wanted, sizeof wanted, "result||");
        }
        append(body, sizeof body, "{'type':'text','text':'deep'}");
        append(wanted, sizeof wanted, "text|'deep'|");
        for (size_t i = depth; i-- > 0;) {
            append(body, sizeof body, i % 2 ? "],'type':'tool_result'}" : "],'is_error':false}");
            append(body, sizeof body, ",{'type':'text','text':'x'}");
            append(wanted, sizeof wanted, "end||text|'x'|");
        }
        append(body, sizeof body, "]}]}");
        assert_string_equal(stream(GRID_API_MESSAGES, body), wanted);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat),
        cmocka_unit_test(chat_refusals),
        cmocka_unit_test(completions),
        cmocka_unit_test(messages),
        cmocka_unit_test(responses),
        cmocka_unit_test(uuid_everywhere),
        cmocka_unit_test(behind_the_list),
        cmocka_unit_test(members_in_any_order),
        cmocka_unit_test(results_in_results),
        cmocka_unit_test(canonical_values),
        cmocka_unit_test(canonical_depth),
        cmocka_unit_test(models),
        cmocka_unit_test(long_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
