/*
 * generate.c - Chat Completions and Completions: from the engine's tokens to an answer or a stream
 *
 * Story     A body becomes a sequence (apis.c) that the engine runs (queue.c); each token that is due becomes an event
 *           of the stream, or all of them one answer at the end.
 * Promise   A body is parsed where it lies and dropped before the engine starts. A reader that lags far behind holds
 *           its sequence back.
 * Not here  Responses (stored.c), which may outlive the request that made them.
 */
#include "exchange.h"

#include <event2/buffer.h>

static bool on_ready(struct grid_sim_seq *seq)
{
    const struct grid_sim_exchange *x = (struct grid_sim_exchange *)seq;
    return !x->dropping && grid_sim_exchange_unread(x) < GRID_SIM_MAX_UNREAD_BYTES;
}

static void on_token(struct grid_sim_seq *seq, bool last)
{
    struct grid_sim_exchange *x = (struct grid_sim_exchange *)seq;
    if (!x->call.stream)
        return;
    if (seq->written == 1 && x->call.api == GRID_SIM_CHAT) {
        struct evbuffer *role = grid_sim_buffer_new();
        grid_sim_call_role_event(&x->call, role);
        grid_sim_exchange_event(x, role);
    }
    struct evbuffer *event = grid_sim_buffer_new();
    grid_sim_call_token_event(&x->call, seq, last, event);
    grid_sim_exchange_event(x, event);
}

static void on_finished(struct grid_sim_seq *seq)
{
    struct grid_sim_exchange *x = (struct grid_sim_exchange *)seq;
    struct evbuffer *out = grid_sim_buffer_new();
    if (!x->call.stream) {
        grid_sim_call_answer(&x->call, seq, out);
        grid_sim_reply(grid_sim_exchange_release(x), HTTP_OK, "application/json", out);
        return;
    }
    if (x->call.include_usage) {
        grid_sim_call_usage_event(&x->call, seq, out);
        grid_sim_exchange_event(x, out);
        out = grid_sim_buffer_new();
    }
    (void)evbuffer_add_printf(out, "data: [DONE]\n\n");
    grid_sim_exchange_event(x, out);
    if (!x->dropping)
        evhttp_send_reply_end(grid_sim_exchange_release(x));
}

static void start_call(struct grid_sim_exchange *x, enum grid_sim_api api)
{
    static const struct grid_sim_seq_ops ops = {.ready = on_ready, .token = on_token, .finished = on_finished};
    struct evbuffer *body = evhttp_request_get_input_buffer(x->req);
    struct grid_sim_refusal refusal;
    size_t bytes = evbuffer_get_length(body);
    const char *text = (const char *)evbuffer_pullup(body, -1);
    if (!grid_sim_call_read(x->server->options, api, text, bytes, &x->call, &x->seq, &refusal)) {
        grid_sim_exchange_refuse(x, &refusal);
        return;
    }
    (void)evbuffer_drain(body, bytes);
    x->seq.ops = &ops;
    grid_sim_exchange_watch(x);
    if (x->call.stream) /* as engines do: the first event comes when the prefill has ended */
        grid_sim_exchange_stream(x);
    grid_sim_queue_submit(&x->server->queue, &x->seq);
}

void grid_sim_chat_start(struct grid_sim_exchange *x)
{
    start_call(x, GRID_SIM_CHAT);
}

void grid_sim_completions_start(struct grid_sim_exchange *x)
{
    start_call(x, GRID_SIM_COMPLETIONS);
}
