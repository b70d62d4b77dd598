/*
 * demo_talk.c - what is said in the demo (see demo_talk.h)
 */
#include "demo_talk.h"

#include "cli/demo_grid.h"

#include <stdio.h>
#include <string.h>

#define HANDBOOK_BYTES 28000u /* about 7,000 tokens, read in 1.75 s at 4,000 tokens a second */
#define LOG_LINES 30u         /* about 500 tokens with each question */

static const char *const questions[] = {
    "The checkout of shop 114 answers slowly since this morning. What do you see in this log?",
    "We restarted billing-2. Here is what came after that. Is it better?",
    "Which of these customers should we write to first?",
    "The on-call engineer suspects the cache. Does this excerpt speak for it?",
    "Please draft a note for the status page from what we know so far.",
    "A customer in the north region says it is still slow. Compare with this.",
    "What would you look at next, and in which order?",
    "Summarise the incident for the review, with the times from the logs.",
    "One more excerpt came in while you were writing. Does it change your summary?",
};

static bool put_message(json_t *messages, const char *role, const char *text, size_t len)
{
    json_t *message = json_pack("{s:s, s:s%}", "role", role, "content", text, len);
    return message != NULL && json_array_append_new(messages, message) == 0;
}

json_t *grid_demo_talk_new(void)
{
    static const char *const regions[] = {"east", "west", "north", "south", "central"};
    static const char *const matters[] = {"a refund",      "an invoice", "a slow page", "a lost parcel",
                                          "a new address", "a login",    "an outage"};
    struct grid_buf text = {.limit = (size_t)2 * HANDBOOK_BYTES};
    grid_buf_puts(&text, "You are the support assistant of a chain of web shops. Answer by this handbook.\n");
    for (unsigned rule = 1; !text.failed && text.len < HANDBOOK_BYTES; rule++)
        grid_buf_printf(&text,
                        "Rule %u. When a customer of the %s region asks about %s, name the ticket, answer in at most "
                        "%u sentences, cite section %u.%u, and hand over to team %u after %u hours.\n",
                        rule, regions[rule % 5], matters[rule % 7], 2 + rule % 4, 1 + rule / 9, 1 + rule % 9,
                        10 + rule * 7 % 80, 1 + rule * 5 % 47);
    json_t *messages = json_array();
    if (messages != NULL && (text.failed || !put_message(messages, "system", text.ptr, text.len))) {
        json_decref(messages);
        messages = NULL;
    }
    grid_buf_done(&text);
    return messages;
}

bool grid_demo_talk_ask(json_t *messages, unsigned turn)
{
    size_t which = (turn - 1) % (sizeof questions / sizeof *questions);
    struct grid_buf text = {.limit = 1u << 16};
    grid_buf_printf(&text, "%s\n", questions[which]);
    for (unsigned i = 0; i < LOG_LINES; i++) {
        unsigned n = turn * LOG_LINES + i;
        grid_buf_printf(&text, "%02u:%02u:%02u billing-%u POST /shop/%u/checkout %u in %u ms\n", 9 + turn % 8, i,
                        n * 7 % 60, 1 + n % 4, 100 + n * 13 % 60, n % 11 == 0 ? 503 : 200, 20 + n * 37 % 900);
    }
    bool good = !text.failed && put_message(messages, "user", text.ptr, text.len);
    grid_buf_done(&text);
    return good;
}

bool grid_demo_talk_hear(json_t *messages, const char *words, size_t len)
{
    return put_message(messages, "assistant", words != NULL ? words : "", len);
}

char *grid_demo_talk_body(json_t *messages, unsigned max_tokens)
{
    json_t *body = json_pack("{s:s, s:b, s:O, s:I, s:{s:b}}", "model", GRID_DEMO_MODEL, "stream", 1, "messages",
                             messages, "max_tokens", (json_int_t)max_tokens, "stream_options", "include_usage", 1);
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

char *grid_demo_talk_neighbour(unsigned number, unsigned max_tokens)
{
    struct grid_buf text = {.limit = 4096};
    grid_buf_printf(&text, "Request %u of somebody else: how far along is ticket %u?", number, number * 31 % 9973);
    json_t *body = text.failed ? NULL
                               : json_pack("{s:s, s:[{s:s, s:s%}], s:I}", "model", GRID_DEMO_MODEL, "messages", "role",
                                           "user", "content", text.ptr, text.len, "max_tokens", (json_int_t)max_tokens);
    char *out = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    grid_buf_done(&text);
    return out;
}
