/*
 * prompt_tables.h - what each API's body looks like, one row a field, part or item type (behaviour.md C.4 to C.7)
 *
 * Story     rows.c interprets these tables and knows no API by name. An object lists the fields that are read of it (a
 *           read field given twice makes the body unreadable) and its variants by `type`; a variant lists, in the order
 *           of the stream, what is written. A new part type is a row; a new API is an object and a line in tops[].
 * Not here  How a row is carried out. Included through rows.h.
 */
#ifndef GRID_PROMPT_TABLES_H
#define GRID_PROMPT_TABLES_H

#include "piece.h"

/* Every field name that some object reads. */
/* clang-format off */
#define FIELDS(X)                                                                                                    \
    X(arguments) X(audio_url) X(cache_salt) X(chat_template) X(chat_template_kwargs) X(content) X(conversation)      \
    X(custom) X(data) X(documents) X(file) X(file_data) X(file_id) X(file_url) X(function) X(image_embeds)           \
    X(image_url) X(input) X(input_audio) X(instructions) X(messages) X(model) X(name) X(output)                      \
    X(previous_response_id) X(prompt) X(refusal) X(role) X(source) X(system) X(text) X(tool_calls) X(tools) X(type)  \
    X(url) X(uuid) X(video_url)
/* clang-format on */
enum field {
#define FIELD_ENUM(name) F_##name,
    FIELDS(FIELD_ENUM)
#undef FIELD_ENUM
        N_FIELDS,
    F_none = N_FIELDS
};
_Static_assert(N_FIELDS <= 64, "fields are bits of one word");
static const struct field_name {
    char text[24]; /* zeros behind it */
    size_t len;
} field_names[N_FIELDS] = {
#define FIELD_NAME(name) {#name, sizeof #name - 1},
    FIELDS(FIELD_NAME)
#undef FIELD_NAME
};
#define BIT(name) ((uint64_t)1 << F_##name)

/* What is written of a field. */
enum rule {
    RULE_TEXT,      /* a string, as sent */
    RULE_NAME,      /* a string, decoded */
    RULE_SENT,      /* any value, as sent; a long one that is no string as a digest */
    RULE_CANONICAL, /* any value, canonical; a long one as a digest */
    RULE_ARGUMENTS, /* a string that holds JSON: that JSON canonical; else as sent; a long one as a digest */
    RULE_OUTPUT,    /* a string as text, else canonical */
    RULE_CONTENT,   /* a string as text, an array as a list of parts, null as nothing */
    RULE_INPUT,     /* a string as one user message, an array as a list of items */
    RULE_LIST,      /* an array of objects */
    RULE_OBJECT,    /* an object */
    RULE_PROMPT,    /* a string or an array of one string */
    RULE_MEDIA,     /* a digest of uuid, else of the first of `keys` in this field (none: in the part itself) */
    RULE_EMBEDS,    /* a digest of uuid, else of the value, whatever it is */
    RULE_REFUSED,   /* nothing may stand here: `reason` */
    RULE_MARK,      /* no field: the tag alone */
};

/* How absence is taken. */
enum need { OPTIONAL, REQUIRED, NULLABLE /* must be there, may be null */ };

struct row {
    enum rule rule;
    enum field field;
    enum need need;
    struct grid_tag tag;                    /* begins the field in the stream */
    const struct grid_prompt_object *inner; /* of elements, or of the object */
    enum field keys[4];                     /* RULE_MEDIA, ended by F_none */
    enum grid_reason reason;                /* RULE_REFUSED */
    const struct grid_tag *behind;          /* RULE_CONTENT of what may be nested, its last row: closes it */
};

struct variant {
    struct grid_str type; /* {NULL,0}: any */
    const struct row *rows;
    size_t n_rows;
};

struct grid_prompt_object {
    uint64_t reads;
    uint64_t one_of;            /* at least one of these must be present */
    struct grid_str plain_type; /* the type of an object without one; {NULL,0}: type is required */
    const struct variant *variants;
    size_t n_variants;
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define ROW(rule_, field_, need_, ...)                                                                                 \
    {                                                                                                                  \
        .rule = RULE_##rule_, .field = F_##field_, .need = need_, __VA_ARGS__                                          \
    }
#define ROWS(name, ...) static const struct row name[] = {__VA_ARGS__}
#define PLAIN(name, fields, ...)                                                                                       \
    static const struct row name##_rows[] = {__VA_ARGS__};                                                             \
    static const struct variant name##_only[] = {{{NULL, 0}, name##_rows, COUNT(name##_rows)}};                        \
    static const struct grid_prompt_object name = {.reads = (fields), .variants = name##_only, .n_variants = 1}
#define VARIANT(type, rows)                                                                                            \
    {                                                                                                                  \
        {type, sizeof type - 1}, rows, COUNT(rows)                                                                     \
    }
#define NOTHING(type)                                                                                                  \
    {                                                                                                                  \
        {type, sizeof type - 1}, NULL, 0                                                                               \
    }
#define TAG(text) /* begins a field */                                                                                 \
    {                                                                                                                  \
        text "\x1F", sizeof text                                                                                       \
    }
#define MEDIA(field_, tag_, ...)                                                                                       \
    {                                                                                                                  \
        .rule = RULE_MEDIA, .field = F_##field_, .tag = tag_, .keys = { __VA_ARGS__, F_none }                          \
    }

/* Shared rows. */
ROWS(text_rows, ROW(TEXT, text, REQUIRED, .tag = TAG("text")));
ROWS(refusal_rows, ROW(TEXT, refusal, REQUIRED, .tag = TAG("text")));
ROWS(audio_rows, MEDIA(input_audio, TAG("input_audio"), F_data));

/* ---- Chat Completions (C.4) */

ROWS(chat_image_rows, MEDIA(image_url, TAG("image_url"), F_url));
ROWS(chat_video_rows, MEDIA(video_url, TAG("video_url"), F_url));
ROWS(chat_sound_rows, MEDIA(audio_url, TAG("audio_url"), F_url));
ROWS(chat_file_rows, MEDIA(file, TAG("file"), F_file_data, F_file_id));
ROWS(chat_embeds_rows, ROW(EMBEDS, image_embeds, REQUIRED, .tag = TAG("image_embeds")));
static const struct variant chat_parts[] = {
    VARIANT("text", text_rows),
    VARIANT("refusal", refusal_rows),
    VARIANT("image_url", chat_image_rows),
    VARIANT("video_url", chat_video_rows),
    VARIANT("audio_url", chat_sound_rows),
    VARIANT("input_audio", audio_rows),
    VARIANT("file", chat_file_rows),
    VARIANT("image_embeds", chat_embeds_rows),
};
static const struct grid_prompt_object chat_part = {
    .reads = BIT(type) | BIT(text) | BIT(refusal) | BIT(image_url) | BIT(video_url) | BIT(audio_url) |
             BIT(input_audio) | BIT(file) | BIT(image_embeds) | BIT(uuid),
    .variants = chat_parts,
    .n_variants = COUNT(chat_parts),
};

PLAIN(chat_function, BIT(name) | BIT(arguments), ROW(NAME, name, REQUIRED, .tag = TAG("call")),
      ROW(ARGUMENTS, arguments, OPTIONAL, .tag = TAG("arguments")));
PLAIN(chat_custom, BIT(name) | BIT(input), ROW(NAME, name, REQUIRED, .tag = TAG("call")),
      ROW(ARGUMENTS, input, OPTIONAL, .tag = TAG("arguments")));
static const struct row chat_call_rows[] = {ROW(OBJECT, function, OPTIONAL, .inner = &chat_function),
                                            ROW(OBJECT, custom, OPTIONAL, .inner = &chat_custom)};
static const struct variant chat_call_only[] = {VARIANT(NULL, chat_call_rows)};
static const struct grid_prompt_object chat_call = {.reads = BIT(function) | BIT(custom),
                                                    .one_of = BIT(function) | BIT(custom),
                                                    .variants = chat_call_only,
                                                    .n_variants = 1};

PLAIN(chat_message, BIT(role) | BIT(content) | BIT(tool_calls), ROW(NAME, role, REQUIRED, .tag = TAG("role")),
      ROW(CONTENT, content, OPTIONAL, .tag = TAG("text"), .inner = &chat_part),
      ROW(LIST, tool_calls, OPTIONAL, .inner = &chat_call));
PLAIN(chat_top,
      BIT(model) | BIT(cache_salt) | BIT(chat_template) | BIT(chat_template_kwargs) | BIT(documents) | BIT(tools) |
          BIT(messages),
      ROW(SENT, chat_template, OPTIONAL, .tag = TAG("chat_template")),
      ROW(CANONICAL, chat_template_kwargs, OPTIONAL, .tag = TAG("chat_template_kwargs")),
      ROW(CANONICAL, documents, OPTIONAL, .tag = TAG("documents")),
      ROW(CANONICAL, tools, OPTIONAL, .tag = TAG("tools")), ROW(LIST, messages, REQUIRED, .inner = &chat_message));

/* ---- Completions (C.5) */

PLAIN(completions_top, BIT(model) | BIT(cache_salt) | BIT(prompt), ROW(PROMPT, prompt, REQUIRED, .tag = TAG("text")));

/* ---- Anthropic Messages (C.6) */

static const struct grid_prompt_object messages_block;
ROWS(block_image_rows, MEDIA(source, TAG("image"), F_data, F_url, F_file_id));
ROWS(block_document_rows, MEDIA(source, TAG("document"), F_data, F_url, F_file_id));
ROWS(block_use_rows, ROW(NAME, name, REQUIRED, .tag = TAG("call")),
     ROW(CANONICAL, input, OPTIONAL, .tag = TAG("arguments")));
static const struct grid_tag result_end = TAG("end\x1F");
static const struct row block_result_rows[] = {
    {.rule = RULE_MARK, .field = F_none, .tag = TAG("result\x1F")},
    {.rule = RULE_CONTENT, .field = F_content, .tag = TAG("text"), .inner = &messages_block, .behind = &result_end}};
static const struct variant messages_blocks[] = {
    VARIANT("text", text_rows),
    VARIANT("image", block_image_rows),
    VARIANT("document", block_document_rows),
    VARIANT("tool_use", block_use_rows),
    VARIANT("tool_result", block_result_rows),
    NOTHING("thinking"),
    NOTHING("redacted_thinking"),
};
static const struct grid_prompt_object messages_block = {
    .reads = BIT(type) | BIT(text) | BIT(source) | BIT(name) | BIT(input) | BIT(content) | BIT(uuid),
    .variants = messages_blocks,
    .n_variants = COUNT(messages_blocks),
};
PLAIN(messages_message, BIT(role) | BIT(content), ROW(NAME, role, REQUIRED, .tag = TAG("role")),
      ROW(CONTENT, content, NULLABLE, .tag = TAG("text"), .inner = &messages_block));
PLAIN(messages_top, BIT(model) | BIT(cache_salt) | BIT(tools) | BIT(system) | BIT(messages),
      ROW(CANONICAL, tools, OPTIONAL, .tag = TAG("tools")),
      ROW(CONTENT, system, OPTIONAL, .tag = TAG("text"), .inner = &messages_block),
      ROW(LIST, messages, REQUIRED, .inner = &messages_message));

/* ---- Responses (C.7) */

ROWS(input_image_rows, MEDIA(none, TAG("input_image"), F_image_url, F_file_id));
ROWS(input_file_rows, MEDIA(none, TAG("input_file"), F_file_data, F_file_id, F_file_url));
static const struct variant responses_parts[] = {
    VARIANT("input_text", text_rows),       VARIANT("output_text", text_rows),
    VARIANT("refusal", refusal_rows),       VARIANT("input_image", input_image_rows),
    VARIANT("input_file", input_file_rows), VARIANT("input_audio", audio_rows),
};
static const struct grid_prompt_object responses_part = {
    .reads = BIT(type) | BIT(text) | BIT(refusal) | BIT(image_url) | BIT(file_id) | BIT(file_data) | BIT(file_url) |
             BIT(input_audio) | BIT(uuid),
    .variants = responses_parts,
    .n_variants = COUNT(responses_parts),
};
ROWS(item_message_rows, ROW(NAME, role, REQUIRED, .tag = TAG("role")),
     ROW(CONTENT, content, OPTIONAL, .tag = TAG("text"), .inner = &responses_part));
ROWS(item_call_rows, ROW(NAME, name, REQUIRED, .tag = TAG("call")),
     ROW(ARGUMENTS, arguments, OPTIONAL, .tag = TAG("arguments")));
ROWS(item_custom_rows, ROW(NAME, name, REQUIRED, .tag = TAG("call")),
     ROW(ARGUMENTS, input, OPTIONAL, .tag = TAG("arguments")));
static const struct row item_output_rows[] = {{.rule = RULE_MARK, .field = F_none, .tag = TAG("result\x1F")},
                                              ROW(OUTPUT, output, REQUIRED, .tag = TAG("text"))};
static const struct variant responses_items[] = {
    VARIANT("message", item_message_rows),
    VARIANT("function_call", item_call_rows),
    VARIANT("function_call_output", item_output_rows),
    VARIANT("custom_tool_call", item_custom_rows),
    VARIANT("custom_tool_call_output", item_output_rows),
    NOTHING("reasoning"),
};
static const struct grid_prompt_object responses_item = {
    .reads = BIT(type) | BIT(role) | BIT(content) | BIT(name) | BIT(arguments) | BIT(input) | BIT(output),
    .plain_type = {"message", 7},
    .variants = responses_items,
    .n_variants = COUNT(responses_items),
};
PLAIN(responses_top,
      BIT(model) | BIT(cache_salt) | BIT(previous_response_id) | BIT(conversation) | BIT(prompt) | BIT(tools) |
          BIT(instructions) | BIT(input),
      {.rule = RULE_REFUSED, .field = F_previous_response_id, .reason = GRID_REASON_STORED_STATE},
      {.rule = RULE_REFUSED, .field = F_conversation, .reason = GRID_REASON_STORED_STATE},
      {.rule = RULE_REFUSED, .field = F_prompt, .reason = GRID_REASON_PROMPT_TEMPLATE},
      ROW(CANONICAL, tools, OPTIONAL, .tag = TAG("tools")),
      ROW(SENT, instructions, OPTIONAL, .tag = TAG("instructions")),
      ROW(INPUT, input, REQUIRED, .tag = TAG("text"), .inner = &responses_item));

/* ---- all */

static const struct grid_prompt_object model_top = {.reads = BIT(model)};
static const struct grid_prompt_object *const tops[] = {
    [GRID_API_NONE] = &model_top,
    [GRID_API_CHAT] = &chat_top,
    [GRID_API_COMPLETIONS] = &completions_top,
    [GRID_API_MESSAGES] = &messages_top,
    [GRID_API_RESPONSES] = &responses_top,
};

#endif
