/*
 * rewrite_answers.h - answers as they should come out, for test_rewrite.c
 *
 * '@' is where a tag goes in, '#' a tag that is there already (east.0a1b2c3d.9f8e7d6c5b4a3928.).
 */
#ifndef GRID_TEST_REWRITE_ANSWERS_H
#define GRID_TEST_REWRITE_ANSWERS_H

static const char *const rewrite_answers[] = {
    /* a response as engines send it */
    ("{\"id\":\"resp_@68af4030\",\"object\":\"response\",\"created_at\":1741476542,\"status\":\"completed\""
     ",\"background\":false,\"error\":null,\"incomplete_details\":null,\"instructions\":null,\"max_output_"
     "tokens\":null,\"model\":\"llama\",\"output\":[{\"type\":\"message\",\"id\":\"msg_67cc\",\"status\":\""
     "completed\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"See resp_aaaa a"
     "nd \\\"id\\\":\\\"resp_bbbb\\\".\",\"annotations\":[]}]}],\"parallel_tool_calls\":true,\"previous_re"
     "sponse_id\":\"resp_@0f\",\"conversation\":{\"id\":\"conv_@66aa\"},\"reasoning\":{\"effort\":null,\"s"
     "ummary\":null},\"store\":true,\"temperature\":1.0,\"text\":{\"format\":{\"type\":\"text\"}},\"tool_c"
     "hoice\":\"auto\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"id\":\"resp_t\"}],\"usage\":{\"i"
     "nput_tokens\":36,\"total_tokens\":123},\"metadata\":{\"id\":\"resp_m\",\"response_id\":\"resp_m\",\""
     "conversation\":\"conv_m\"}}"),
    /* the same, spread over lines */
    ("{\n  \"id\": \"resp_@68af4030\",\n  \"output\": [\n    {\n      \"type\": \"message\",\n      \"id\""
     ": \"msg_67cc\",\n      \"status\": \"completed\",\n      \"role\": \"assistant\",\n      \"content\""
     ": [\n        {\n          \"type\": \"output_text\",\n          \"text\": \"See resp_aaaa and \\\"id"
     "\\\":\\\"resp_bbbb\\\".\",\n          \"annotations\": []\n        }\n      ]\n    }\n  ],\n  \"prev"
     "ious_response_id\": \"resp_@0f\",\n  \"conversation\": {\n    \"id\": \"conv_@66aa\"\n  },\n  \"meta"
     "data\": {\n    \"id\": \"resp_m\",\n    \"response_id\": \"resp_m\",\n    \"conversation\": \"conv_m"
     "\"\n  }\n}"),
    /* in progress, in the background */
    ("{\"id\":\"resp_@9\",\"object\":\"response\",\"status\":\"queued\",\"background\":true,\"output\":[],"
     "\"previous_response_id\":null,\"conversation\":null}"),
    /* cancelled */
    "{\"id\":\"resp_@9\",\"object\":\"response\",\"status\":\"cancelled\",\"error\":null}",
    /* deleted */
    "{\"id\":\"resp_@6786\",\"object\":\"response\",\"deleted\":true}",
    /* compaction */
    ("{\"id\":\"resp_@1\",\"object\":\"response.compaction\",\"output\":[{\"id\":\"cmp_1\",\"type\":\"comp"
     "action\"}]}"),
    /* input items: a list, whose ids are no state ids */
    ("{\"object\":\"list\",\"data\":[{\"id\":\"msg_abc\",\"type\":\"message\",\"role\":\"user\",\"content\""
     ":[{\"type\":\"input_text\",\"text\":\"resp_x\"}]},{\"id\":\"resp_odd\"}],\"first_id\":\"msg_abc\",\""
     "last_id\":\"resp_odd\",\"has_more\":false}"),
    /* a conversation */
    ("{\"id\":\"conv_@123\",\"object\":\"conversation\",\"created_at\":1741900000,\"metadata\":{\"topic\":"
     "\"demo\",\"id\":\"conv_m\"}}"),
    /* a conversation, deleted */
    "{\"id\":\"conv_@123\",\"object\":\"conversation.deleted\",\"deleted\":true}",
    /* items of a conversation */
    ("{\"object\":\"list\",\"data\":[{\"type\":\"message\",\"id\":\"msg_abc\",\"conversation_id\":\"conv_x"
     "\"}],\"has_more\":false}"),
    /* an error */
    ("{\"error\":{\"message\":\"No response resp_1\",\"type\":\"invalid_request_error\",\"param\":\"respon"
     "se_id\",\"id\":\"resp_1\"}}"),
    /* every name that takes an id */
    ("{\"id\":\"resp_@1\",\"previous_response_id\":\"resp_@2\",\"response_id\":\"resp_@3\",\"conversation\""
     ":\"conv_@4\",\"conversation_id\":\"conv_@5\"}"),
    /* either prefix, whatever the name */
    "{\"id\":\"conv_@1\",\"conversation\":\"resp_@2\"}",
    /* names that are near */
    ("{\"ID\":\"resp_1\",\"ids\":\"resp_1\",\"i\":\"resp_1\",\"\":\"resp_1\",\"previous_response_ids\":\"r"
     "esp_1\",\"previous_response_i\":\"resp_1\",\"response\":\"resp_1\",\"item_id\":\"resp_1\",\"first_id"
     "\":\"resp_1\"}"),
    /* names that are long */
    "{\"previous_response_iddddddddddddddddddddddddddddddddddddddddddddd\":\"resp_1\",\"id\":\"resp_@1\","
    "\"idididididididididididididididididididididididididididididid\":\"resp_1\"}",
    /* prefixes that are near */
    ("{\"id\":\"resp-1\",\"conversation\":\"con_v\",\"response_id\":\"Resp_1\",\"conversation_id\":\"rconv"
     "_1\",\"id\":\"resp\",\"id\":\"\",\"id\":\"r\",\"id\":\" resp_1\"}"),
    /* the prefix alone */
    "{\"id\":\"resp_\",\"conversation\":\"conv_\",\"response_id\":\"resp_@ \"}",
    /* tagged already */
    "{\"id\":\"resp_#1\",\"conversation\":{\"id\":\"conv_#1\"},\"response_id\":\"resp_#\"}",
    /* almost tagged already */
    ("{\"id\":\"resp_@east.0a1\",\"response_id\":\"resp_@east.0a1b2c3d.9f8e7d6c5b4a3928\",\"conversation\""
     ":\"conv_@east.0a1b2c3d.9f8e7d6c5b4a3928x\"}"),
    /* another tag */
    "{\"id\":\"resp_@west.deadbeef..stolen\"}",
    /* its own tag twice */
    "{\"id\":\"resp_##1\"}",
    /* numbers, literals and other things where an id should be */
    ("{\"id\":12,\"id\":null,\"id\":[\"resp_1\"],\"id\":{\"id\":\"resp_1\"},\"id\":-0.5e+3,\"id\":true,\"i"
     "d\":\"resp_@1\"}"),
    /* a name that is an id of another */
    "{\"x\":\"id\",\"resp_1\":\"id\",\"id\":\"resp_@1\"}",
    /* a value that looks like a member */
    "{\"x\":\"\\\"id\\\":\\\"resp_1\\\"\",\"y\":\"id\\\":\\\"resp_1\",\"id\":\"resp_@1\"}",
    /* own objects in own objects */
    ("{\"response\":{\"id\":\"resp_@1\",\"conversation\":{\"id\":\"conv_@1\",\"response\":{\"id\":\"resp_@"
     "2\",\"x\":{\"id\":\"resp_n\"}}},\"previous_response_id\":\"resp_@0\"},\"id\":\"resp_@3\"}"),
    /* foreign objects and what is in them */
    ("{\"output\":{\"id\":\"resp_1\",\"response\":{\"id\":\"resp_1\"}},\"input\":{\"conversation\":{\"id\""
     ":\"conv_1\"}},\"data\":{\"id\":\"resp_1\"},\"id\":\"resp_@1\"}"),
    /* nothing in arrays */
    ("{\"response\":[{\"id\":\"resp_1\"}],\"conversation\":[[{\"id\":\"conv_1\"}],\"conv_1\"],\"id\":\"res"
     "p_@1\"}"),
    /* an array at the top */
    "[{\"id\":\"resp_1\"},\"resp_1\"]",
    /* text with brackets in it */
    "{\"x\":\"}]{[\",\"y\":[\"}\"],\"id\":\"resp_@1\"}",
    /* a string that ends in an escaped backslash */
    "{\"x\":\"a\\\\\",\"id\":\"resp_@1\",\"y\":\"\\\"\",\"response_id\":\"resp_@2\"}",
    /* escapes hide a name and a prefix */
    ("{\"\\u0069d\":\"resp_1\",\"id\":\"\\u0072esp_1\",\"id\":\"resp\\u005f1\",\"i\\u0064\":\"resp_1\",\"i"
     "d\":\"resp_@\\u0031\",\"response_id\":\"resp_@\\\"\"}"),
    /* an escape within the tag */
    "{\"id\":\"resp_@east.\\u0030a1b2c3d.\",\"id\":\"resp_@east\\u002e\"}",
    /* bytes that are no UTF-8 */
    "{\"x\":\"\xe9"
    "\x80"
    "\",\"id\":\"resp_@\xff"
    "\",\"\xff"
    "\":1,\"response_id\":\"resp_@1\"}",
    /* white space wherever it may be */
    (" \t\r\n{ \"id\" \n:\t\"resp_@1\" , \"response\" :\r{ \"id\":\"resp_@2\" } , \"x\" : [ ] , \"y\" : { "
     "} }\n"),
    /* a byte order mark */
    "\xef"
    "\xbb"
    "\xbf"
    "{\"id\":\"resp_@1\"}",
    /* part of a byte order mark */
    "\xef"
    "\xbb"
    "{\"id\":\"resp_1\"}",
    /* NaN and Infinity, as Python prints them */
    "{\"a\":NaN,\"b\":[Infinity,-Infinity],\"id\":\"resp_@1\"}",
    /* empty */
    " ",
    /* nothing but an object */
    "{}",
    /* behind the first value */
    "{\"id\":\"resp_@1\"}{\"id\":\"resp_2\"}",
    /* behind the first value, a comma */
    "{\"id\":\"resp_@1\"},\"id\":\"resp_2\"}",
    /* cut off */
    "{\"id\":\"res",
    "{\"id\":\"resp_",
    "{\"id\":\"resp_east.0a",
    "{\"id\":\"resp_@eastx",
    "{\"id\":\"resp_@x",
    "{\"id",
    "{\"id\":",
    "{\"response\":{\"id\":\"conv_east.",
    "{\"id\":\"resp_#",
    /* a breach of the grammar */
    "{\"id\":resp_1,\"response_id\":\"resp_1\"}",
    "{\"a\":1 \"id\":\"resp_1\"}",
    "{\"a\":[1 2],\"id\":\"resp_1\"}",
    "{\"a\":[},\"id\":\"resp_1\"}",
    "{\"a\":[{]},\"id\":\"resp_1\"}",
    "{\"a\":{1:2},\"id\":\"resp_1\"}",
    "{\"a\":01,\"id\":\"resp_1\"}",
    "{\"a\":-,\"id\":\"resp_1\"}",
    "{\"a\":1.,\"id\":\"resp_1\"}",
    "{\"a\":tru,\"id\":\"resp_1\"}",
    "{\"a\":nul1,\"id\":\"resp_1\"}",
    "{\"a\":NaN1,\"id\":\"resp_1\"}",
    "{\"a\":\"\\x\",\"id\":\"resp_1\"}",
    "{\"a\":\"\\u00g0\",\"id\":\"resp_1\"}",
    "{\"a\":\"\\u00e\",\"id\":\"resp_1\"}",
    "{\"a\":\"\n\",\"id\":\"resp_1\"}",
    "{,\"id\":\"resp_1\"}",
    "{\"a\":,\"id\":\"resp_1\"}",
    "{\"a\":1,,\"id\":\"resp_1\"}",
    "{\"a\":[1,],\"id\":\"resp_1\"}",
    "{\"a\"::1,\"id\":\"resp_1\"}",
    "{\"id\" \"resp_1\"}",
    "{'id':'resp_1',\"id\":\"resp_1\"}",
    "{\"a\":/**/1,\"id\":\"resp_1\"}",
    "{\"id\":\"resp_\n1\",\"id\":\"resp_1\"}",
    "{\"id\":\"resp_east.\n\",\"id\":\"resp_1\"}",
    "{\"id\":\"resp_@1\n\",\"id\":\"resp_1\"}",
    "{\"id\":\"resp_@1]}",
    "{\"a\":{\"id\":\"resp_1\"]},\"id\":\"resp_1\"}",
    "[]{\"id\":\"resp_1\"}",
    "{\"a\":{}}}{\"id\":\"resp_1\"}",
    "\"resp_1\"",
    "{\"a\":[[[[}]]],\"id\":\"resp_1\"}",
};

static const char *const rewrite_streams[] = {
    /* all events of a stream */
    ("event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\""
     "id\":\"resp_@67c9\",\"object\":\"response\",\"status\":\"in_progress\",\"output\":[],\"previous_resp"
     "onse_id\":\"resp_@0f\",\"conversation\":{\"id\":\"conv_@1\"},\"metadata\":{\"id\":\"resp_m\"}}}\n\ne"
     "vent: response.in_progress\ndata: {\"type\":\"response.in_progress\",\"sequence_number\":1,\"respons"
     "e\":{\"id\":\"resp_@67c9\",\"object\":\"response\",\"status\":\"in_progress\",\"output\":[],\"previo"
     "us_response_id\":\"resp_@0f\",\"conversation\":{\"id\":\"conv_@1\"},\"metadata\":{\"id\":\"resp_m\"}"
     "}}\n\nevent: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_n"
     "umber\":2,\"output_index\":0,\"item\":{\"id\":\"msg_67\",\"type\":\"message\",\"status\":\"in_progre"
     "ss\",\"role\":\"assistant\",\"content\":[]}}\n\nevent: response.content_part.added\ndata: {\"type\":"
     "\"response.content_part.added\",\"sequence_number\":3,\"item_id\":\"msg_67\",\"output_index\":0,\"co"
     "ntent_index\":0,\"part\":{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[]}}\n\nevent: resp"
     "onse.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":4,\"item_"
     "id\":\"msg_67\",\"output_index\":0,\"content_index\":0,\"delta\":\"resp_\"}\n\nevent: response.outpu"
     "t_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":5,\"item_id\":\"msg"
     "_67\",\"output_index\":0,\"content_index\":0,\"delta\":\"1\\\",\\\"id\\\":\\\"resp_1\"}\n\nevent: re"
     "sponse.output_text.done\ndata: {\"type\":\"response.output_text.done\",\"sequence_number\":6,\"item_"
     "id\":\"msg_67\",\"text\":\"resp_1\\\"id\\\":\\\"resp_1\"}\n\nevent: response.content_part.done\ndata"
     ": {\"type\":\"response.content_part.done\",\"sequence_number\":7,\"item_id\":\"msg_67\",\"part\":{\""
     "type\":\"output_text\",\"text\":\"resp_1\",\"annotations\":[]}}\n\nevent: response.output_item.done\n"
     "data: {\"type\":\"response.output_item.done\",\"sequence_number\":8,\"output_index\":0,\"item\":{\"i"
     "d\":\"msg_67\",\"type\":\"message\",\"status\":\"in_progress\",\"role\":\"assistant\",\"content\":[]"
     "}}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":9,\"resp"
     "onse\":{\"id\":\"resp_@67c9\",\"object\":\"response\",\"status\":\"completed\",\"output\":[],\"previ"
     "ous_response_id\":\"resp_@0f\",\"conversation\":{\"id\":\"conv_@1\"},\"metadata\":{\"id\":\"resp_m\""
     "}}}\n\n"),
    /* reasoning, tools, a refusal */
    ("event: response.reasoning_summary_text.delta\ndata: {\"type\":\"response.reasoning_summary_text.delt"
     "a\",\"item_id\":\"rs_1\",\"delta\":\"resp_x\"}\n\nevent: response.function_call_arguments.delta\ndat"
     "a: {\"type\":\"response.function_call_arguments.delta\",\"item_id\":\"fc_1\",\"delta\":\"{\\\"id\\\""
     ":\\\"resp_\"}\n\nevent: response.function_call_arguments.done\ndata: {\"type\":\"response.function_c"
     "all_arguments.done\",\"item_id\":\"fc_1\",\"arguments\":\"{\\\"id\\\":\\\"resp_1\\\"}\"}\n\nevent: r"
     "esponse.refusal.delta\ndata: {\"type\":\"response.refusal.delta\",\"delta\":\"conv_\"}\n\nevent: res"
     "ponse.mcp_call.completed\ndata: {\"type\":\"response.mcp_call.completed\",\"item_id\":\"mcp_1\",\"re"
     "sponse_id\":\"resp_@1\"}\n\n"),
    /* failed, incomplete, an error */
    ("event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"id\":\"resp_@1\",\"error"
     "\":{\"id\":\"resp_no\"}}}\n\nevent: response.incomplete\ndata: {\"type\":\"response.incomplete\",\"r"
     "esponse\":{\"id\":\"resp_@1\"}}\n\nevent: error\ndata: {\"type\":\"error\",\"code\":\"x\",\"message\""
     ":\"resp_1\"}\n\n"),
    /* the end word */
    "data: {\"id\":\"resp_@1\"}\n\ndata: [DONE]\n\ndata: {\"id\":\"resp_@2\"}\n\n",
    /* no space, and two */
    "data:{\"id\":\"resp_@1\"}\n\ndata:  {\"id\":\"resp_@1\"}\n\n",
    /* other fields */
    ("id: {\"id\":\"resp_1\"}\nretry: 5\n: {\"id\":\"resp_1\"}\nDATA: {\"id\":\"resp_1\"}\ndat: {\"id\":\""
     "resp_1\"}\ndatas: {\"id\":\"resp_1\"}\n data: {\"id\":\"resp_1\"}\ndata : {\"id\":\"resp_1\"}\n\ndat"
     "a: {\"id\":\"resp_@1\"}\n\n"),
    /* one event over two data lines */
    "data: {\"response\":\ndata: {\"id\":\"resp_@1\"}}\n\n",
    /* over lines that are not all data */
    "data: {\"response\":\nevent: x\n: note\ndata: {\"id\":\nid: 5\ndata:\"resp_@1\"}}\n\n",
    /* an empty data line in between */
    "data: {\"response\":\ndata\ndata:\ndata: {\"id\":\"resp_@1\"}}\n\n",
    /* a string does not go on in the next line */
    "data: {\"id\":\"resp_\ndata: 1\",\"id\":\"resp_1\"}\n\ndata: {\"id\":\"resp_@2\"}\n\n",
    /* nor does a word, nor a number */
    ("data: {\"a\":tr\ndata: ue,\"id\":\"resp_1\"}\n\ndata: {\"a\":1\ndata: 2,\"id\":\"resp_1\"}\n\ndata: "
     "{\"a\":1\ndata: ,\"id\":\"resp_@1\"}\n\ndata: {\"a\":1.\ndata: ,\"id\":\"resp_1\"}\n\n"),
    /* a broken event does not spoil the next */
    "data: {\"x\":{\"y\":[\"\n\ndata: {\"response\":{\"id\":\"resp_@1\"}}\n\n",
    /* an id that its line cuts off */
    ("data: {\"id\":\"resp_east.0a\n\ndata: {\"id\":\"resp_@1\"}\n\ndata: {\"id\":\"resp_\n\ndata: {\"id\""
     ":\"conv_@1\"}\n\n"),
    /* a second value in one event */
    "data: {\"id\":\"resp_@1\"}\ndata: {\"id\":\"resp_2\"}\n\n",
    /* blank lines in a row */
    "\n\ndata: {\"id\":\"resp_@1\"}\n\n\n\n\ndata: {\"id\":\"resp_@1\"}\n\n",
    /* tagged already */
    "data: {\"response\":{\"id\":\"resp_#1\"}}\n\ndata: {\"response\":{\"id\":\"resp_@1\"}}\n\n",
    /* no end */
    "data: {\"id\":\"resp_@1\"}\n\ndata: {\"id\":\"resp_east.",
    /* a byte order mark */
    "\xef"
    "\xbb"
    "\xbf"
    "data: {\"id\":\"resp_@1\"}\n\n\xef"
    "\xbb"
    "\xbf"
    "data: {\"id\":\"resp_1\"}\n\n",
    /* part of one */
    "\xef"
    "\xbb"
    "data: {\"id\":\"resp_1\"}\n\ndata: {\"id\":\"resp_@1\"}\n\n",
    /* mixed line ends */
    ("data: {\"response\":\r\ndata: {\rdata: \"id\":\"resp_@1\"}}\r\n\ndata: {\"id\":\"resp_@1\"}\r\rdata:"
     " {\"id\":\"resp_@1\"}\n\rdata: {\"id\":\"resp_@1\"}\r\n\r\ndata: {\"id\":\"resp_@1\"}\n\n"),
    /* a line feed behind a return is no second line end */
    "data: {\"a\":[\r\ndata: ],\"id\":\"resp_@1\"}\r\n\r\n",
    /* arrays at the top */
    "data: [{\"id\":\"resp_1\"}]\n\n",
    /* no JSON at all */
    "data: hello \"id\":\"resp_1\"\n\nhello {\"id\":\"resp_1\"}\n\n",
};

#endif
