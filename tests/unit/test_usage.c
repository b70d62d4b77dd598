/*
 * test_usage.c - what an answer says of its tokens: each API's form, whole and streamed, cut at every byte
 */
#include <string.h>

#include "unit.h"
#include "usage.h"

#define NONE UINT64_MAX

struct said {
    uint64_t prompt, cached, output; /* NONE: not said */
    unsigned pieces;                 /* with tokens */
};

/* Reads the text (single quotes for double ones, '|' for a line feed) in two pieces cut at `cut`. */
static struct said read_cut(const char *pattern, bool events, size_t cut)
{
    char text[4096];
    size_t len = strlen(pattern);
    assert_true(len < sizeof text);
    for (size_t i = 0; i <= len; i++)
        text[i] = pattern[i] == '\'' ? '"' : pattern[i];
    for (size_t i = 0; events && i < len; i++)
        text[i] = text[i] == '|' ? '\n' : text[i];
    struct grid_usage usage;
    struct said said = {NONE, NONE, NONE, 0};
    struct grid_str slices[] = {{text, cut}, {text + cut, len - cut}};
    grid_usage_begin(&usage, events);
    said.pieces += grid_usage_feed(&usage, &slices[0], 1);
    said.pieces += grid_usage_feed(&usage, &slices[1], 1);
    if (!grid_usage_prompt(&usage, &said.prompt))
        said.prompt = NONE;
    if (!grid_usage_cached(&usage, &said.cached))
        said.cached = NONE;
    if (usage.given[GRID_USAGE_OUTPUT])
        said.output = usage.counts[GRID_USAGE_OUTPUT];
    return said;
}

static void says(const char *text, bool events, uint64_t prompt, uint64_t cached, uint64_t output)
{
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        struct said said = read_cut(text, events, cut);
        if (said.prompt != prompt || said.cached != cached || said.output != output)
            print_message("cut at %zu: %s\n", cut, text);
        assert_int_equal(said.prompt, prompt);
        assert_int_equal(said.cached, cached);
        assert_int_equal(said.output, output);
    }
}

static void whole_answers(void **state)
{
    (void)state;
    says("{'id':'x','choices':[{'message':{'usage':{'prompt_tokens':1},'content':'a \\\" { [ 😀'}}],'usage':"
         "{'prompt_tokens':1200,'completion_tokens':7,'prompt_tokens_details':{'cached_tokens':1184}}}",
         false, 1200, 1184, 7);
    says(" {'object':'response','output':[{'usage':{}}],'usage':{'input_tokens':90,'input_tokens_details':{"
         "'cached_tokens':64,'x':[1,{'cached_tokens':9}]},'output_tokens':3,'total_tokens':93}} ",
         false, 90, 64, 3);
    says("{'type':'message','usage':{'input_tokens':10,'cache_read_input_tokens':80,'cache_creation_input_tokens':6,"
         "'output_tokens':2}}",
         false, 96, 80, 2);
    says("{'usage':{'prompt_tokens':0,'prompt_tokens_details':{'cached_tokens':0}}}", false, 0, 0, NONE);
}

static void what_is_not_said(void **state)
{
    (void)state;
    says("{'usage':{'prompt_tokens':12,'prompt_tokens_details':null}}", false, 12, NONE, NONE);
    says("{'usage':null,'choices':[]}", false, NONE, NONE, NONE);
    says("{'usage':{'prompt_tokens':'12'}}", false, NONE, NONE, NONE);
    says("{'usage':{'prompt_tokens':-12}}", false, NONE, NONE, NONE);
    says("{'usage':{'prompt_tokens':1.5,'completion_tokens':1e3}}", false, NONE, NONE, NONE);
    says("{'usage':{'prompt_tokens':[12]}}", false, NONE, NONE, NONE);
    says("{'usage':{'prompt_tokens':99999999999999999999999999}}", false, NONE, NONE, NONE);
    says("{'usage':[{'prompt_tokens':12}]}", false, NONE, NONE, NONE);
    says("[{'usage':{'prompt_tokens':12}}]", false, NONE, NONE, NONE);
    says("{'x':{'usage':{'prompt_tokens':12}}}", false, NONE, NONE, NONE);
    says("{'\\u0075sage':{'prompt_tokens':12}}", false, NONE, NONE, NONE);
    says("{'usage' 'prompt_tokens':12}", false, NONE, NONE, NONE);
    says("{'usage':{'prompt_tokens':12", false, NONE, NONE, NONE);
    says("{'a':1} {'usage':{'prompt_tokens':12}}", false, NONE, NONE, NONE);
    says("plain text", false, NONE, NONE, NONE);
    says("", false, NONE, NONE, NONE);
    says("data: {'usage':{'prompt_tokens':12}}", false, NONE, NONE, NONE);
}

static void the_last_one_counts(void **state)
{
    (void)state;
    says("{'usage':{'prompt_tokens':12},'usage':{'prompt_tokens':13}}", false, 13, NONE, NONE);
    says("data: {'usage':{'prompt_tokens':12,'completion_tokens':1}}||data: {'usage':{'completion_tokens':2}}||", true,
         12, NONE, 2);
}

static void event_streams(void **state)
{
    (void)state;
    says("data: {'choices':[{'delta':{'content':'a'}}],'usage':null}||: ping||data: {'choices':[],'usage':{"
         "'prompt_tokens':5,'prompt_tokens_details':{'cached_tokens':4}}}||data: [DONE]||",
         true, 5, 4, NONE);
    says("event: response.created|data: {'type':'response.created','response':{'usage':null}}||event: x|"
         "data:{'type':'response.completed',|data:'response':{'usage':{'input_tokens':7,'input_tokens_details':"
         "{'cached_tokens':6}}}}||",
         true, 7, 6, NONE);
    says("event: message_start|data: {'type':'message_start','message':{'usage':{'input_tokens':3,"
         "'cache_read_input_tokens':9,'output_tokens':1}}}||event: message_delta|data: {'type':'message_delta',"
         "'usage':{'output_tokens':25}}||",
         true, 12, 9, 25);
    says("data: {'usage':|dat|:|data: {'prompt_tokens':5}}||", true, 5, NONE, NONE);
    says("id: {'usage':{'prompt_tokens':5}}|dato: {'usage':{'prompt_tokens':5}}|data : {'usage':{'prompt_tokens':5}}||",
         true, NONE, NONE, NONE);
    says("data: {'usage':\r\ndata: {'prompt_tokens':5}}\r\n\r\ndata: {'usage':{'completion_tokens':2}}\r\rdata: {",
         true, 5, NONE, 2);
}

static void tokens(const char *text, unsigned pieces)
{
    assert_int_equal(read_cut(text, true, 0).pieces, pieces);
}

/* Two pieces: the text up to a place and from there. Which of them bring tokens? */
static void which_pieces_bring_tokens(void **state)
{
    (void)state;
    tokens("data: {'choices':[{'delta':{'role':'assistant'}}]}||", 1);
    tokens("data: {'choices': [ ]}||", 0);
    tokens("data: {'choices':[{", 0); /* not before the event's end */
    tokens(": ping||event: ping|data: {'type':'ping'}||", 0);
    tokens("data: [DONE]||", 0);
    tokens("data: {'type':'message_start','message':{'type':'content_block_delta'}}||", 0);
    tokens("data: {'type':'message_delta','usage':{'output_tokens':3}}||", 0);
    tokens("data: {'type':'content_block_delta','delta':{'text':'a'}}||", 1);
    tokens("data: {'delta':'a','type':'response.output_text.delta'}||", 1);
    tokens("data: {'type':'response.function_call_arguments.delta'}||", 1);
    tokens("data: {'type':'response.output_text.done'}||", 0);
    tokens("data: {'type':'a type as long as none that matters is, and then some more of it.delta'}||", 0);
    tokens("data: {'type':'.delta'}||", 0);
    tokens("data: {'choices':[1]}|\r\n||", 1);
    const char *text = "data: {'choices':[1]}||data: {'choices':[2]}||";
    for (size_t cut = 0; cut <= strlen(text); cut++)
        assert_int_equal(read_cut(text, true, cut).pieces, cut >= 23 && cut < strlen(text) ? 2 : 1);
}

/* Whatever it is, a second text begins anew, and depth costs nothing. */
static void deep_and_broken_texts(void **state)
{
    (void)state;
    struct grid_usage usage;
    static char deep[100000];
    struct grid_str all = {deep, sizeof deep};
    uint64_t found;
    for (size_t round = 0; round < 2; round++) {
        memset(deep, round ? '{' : '[', sizeof deep);
        memcpy(deep, "data: {\"x\":", 11);
        grid_usage_begin(&usage, true);
        assert_false(grid_usage_feed(&usage, &all, 1));
        struct grid_str next = GRID_LIT("\n\ndata: {\"usage\":{\"prompt_tokens\":3}}\n\n");
        assert_false(grid_usage_feed(&usage, &next, 1));
        assert_true(grid_usage_prompt(&usage, &found));
        assert_int_equal(found, 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_answers),
        cmocka_unit_test(what_is_not_said),
        cmocka_unit_test(the_last_one_counts),
        cmocka_unit_test(event_streams),
        cmocka_unit_test(which_pieces_bring_tokens),
        cmocka_unit_test(deep_and_broken_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
