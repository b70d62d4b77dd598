/*
 * fake_stream.c - drives the module's hooks through one stream, as Envoy does
 */
#include "tests/support/fake_envoy.h"
#include "tests/support/fake_memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- driving a stream ---------------------------------------------------------------------------------------- */

struct fake_stream *fake_open(const char *filter_name)
{
    struct fake_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        abort();
    stream->selects = 1;
    stream->filter = ON(http_filter_new)(fake_filter_configs[strcmp(filter_name, "grid_ops") == 0], stream);
    if (ON(cluster_specifier_select)(fake_specifier, stream))
        abort(); /* Envoy asks before the filters run: no cluster yet */
    return stream;
}

int fake_head(struct fake_stream *stream, const char *lines, bool end)
{
    read_lines(&stream->headers[ENVOY_REQUEST_HEADERS], lines);
    int status = ON(http_filter_request_headers)(stream, stream->filter, end);
    hook_returned(stream);
    stream->head_sent = status == ENVOY_HEADERS_CONTINUE;
    stream->end_sent = stream->head_sent && end;
    return status;
}

static void send_on(struct fake_stream *stream, bool end)
{
    stream->head_sent = true;
    stream->end_sent = end;
    move_out(&stream->bodies[ENVOY_REQUEST_BUFFERED], &stream->sent, &stream->sent_bytes);
    move_out(&stream->bodies[ENVOY_REQUEST_RECEIVED], &stream->sent, &stream->sent_bytes);
}

void fake_send_piece(struct fake_stream *stream, const char *bytes, size_t len, bool end)
{
    struct fake_body *received = &stream->bodies[ENVOY_REQUEST_RECEIVED];
    struct fake_body *buffered = &stream->bodies[ENVOY_REQUEST_BUFFERED];
    add_slice(stream->received_is_buffered ? buffered : received, bytes, len);
    int status = ON(http_filter_request_body)(stream, stream->filter, end);
    hook_returned(stream);
    if (status == ENVOY_BODY_CONTINUE)
        send_on(stream, end);
    else if (status == ENVOY_BODY_STOP_AND_BUFFER)
        move_body(received, buffered);
    else
        free_body(received);
}

void fake_send_body(struct fake_stream *stream, const char *bytes, size_t len, size_t piece, enum fake_http http)
{
    for (size_t at = 0; at < len && stream->reply_status == 0; at += piece) {
        size_t n = len - at < piece ? len - at : piece;
        fake_send_piece(stream, bytes + at, n, http == FAKE_HTTP2 && at + n == len);
    }
    if (http == FAKE_HTTP1 && stream->reply_status == 0)
        fake_send_piece(stream, NULL, 0, true);
}

void fake_send_trailers(struct fake_stream *stream)
{
    if (ON(http_filter_request_trailers)(stream, stream->filter) == ENVOY_TRAILERS_CONTINUE)
        send_on(stream, true);
    hook_returned(stream);
}

static void answer_on(struct fake_stream *stream)
{
    move_out(&stream->bodies[ENVOY_RESPONSE_BUFFERED], &stream->answer, &stream->answer_bytes);
    move_out(&stream->bodies[ENVOY_RESPONSE_RECEIVED], &stream->answer, &stream->answer_bytes);
}

void fake_answer_head(struct fake_stream *stream, const char *lines, bool end)
{
    read_lines(&stream->headers[ENVOY_RESPONSE_HEADERS], lines);
    if (ON(http_filter_response_headers)(stream, stream->filter, end) != ENVOY_HEADERS_CONTINUE)
        abort(); /* no answer waits */
    hook_returned(stream);
    answer_on(stream);
}

void fake_answer_slice(struct fake_stream *stream, const char *bytes, size_t len)
{
    add_slice(&stream->bodies[ENVOY_RESPONSE_RECEIVED], bytes, len);
}

void fake_answer_piece(struct fake_stream *stream, const char *bytes, size_t len, bool end)
{
    fake_answer_slice(stream, bytes, len);
    if (ON(http_filter_response_body)(stream, stream->filter, end) != ENVOY_BODY_CONTINUE)
        abort(); /* no piece of it either */
    hook_returned(stream);
    answer_on(stream);
}

void fake_answer_trailers(struct fake_stream *stream)
{
    if (ON(http_filter_response_trailers)(stream, stream->filter) != ENVOY_TRAILERS_CONTINUE)
        abort();
    answer_on(stream);
}

void fake_answer(struct fake_stream *stream, const char *lines, const char *body)
{
    fake_answer_head(stream, lines, !*body);
    if (*body)
        fake_answer_piece(stream, body, strlen(body), true);
}

void fake_local_answer(struct fake_stream *stream, int status, uint64_t flags, const char *lines, const char *body)
{
    stream->flags = flags;
    ON(http_filter_local_reply)(stream, stream->filter, (uint32_t)status, text_of("by_envoy"), false);
    fake_answer(stream, lines, body);
}

void fake_close(struct fake_stream *stream)
{
    ON(http_filter_stream_complete)(stream, stream->filter);
    ON(http_filter_destroy)(stream->filter);
    for (size_t i = 0; i < 4; i++) {
        free_headers(&stream->headers[i]);
        free_body(&stream->bodies[i]);
    }
    free_headers(&stream->reply_headers);
    free(stream->reply_body);
    free(stream->sent);
    free(stream->answer);
    free(stream);
}
