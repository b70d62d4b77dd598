/*
 * queue.c - the engine: who waits, who runs, when a token is due
 *
 * Story     A sequence waits (FIFO) until fewer than max_num_seqs run, is admitted, takes its turn at the one prefill,
 *           and then decodes. The prefix cache is asked when the prefill starts and fed when it ends, so a prompt never
 *           profits from one that is still being computed. The first token is due when the prefill ends.
 * Promise   Every sequence has one timer in libevent's heap: a token costs O(log n). Tokens are due at fixed times from
 *           the first one, so a late loop catches up and does not drift. Aborting at any stage frees the slot at once.
 * Not here  How a token is written (http.c), what it says (apis.c).
 */
#include "sim.h"

#include <math.h>

static void prefill_next(struct grid_sim_queue *queue);

void grid_sim_queue_init(struct grid_sim_queue *queue, struct event_base *base, struct grid_sim_cache *cache,
                         const struct grid_sim_options *options)
{
    *queue = (struct grid_sim_queue){.base = base, .cache = cache, .options = options};
    TAILQ_INIT(&queue->waiting);
    TAILQ_INIT(&queue->admitted);
}

static void arm(struct grid_sim_seq *seq, int64_t delay_ns)
{
    if (delay_ns < 0)
        delay_ns = 0;
    struct timeval delay = {.tv_sec = (time_t)(delay_ns / GRID_SIM_NS_PER_S),
                            .tv_usec = (suseconds_t)(delay_ns % GRID_SIM_NS_PER_S / 1000)};
    (void)event_add(&seq->timer, &delay);
}

/* When token number index (from 0) is due. */
static int64_t due_ns(const struct grid_sim_seq *seq, uint64_t index)
{
    double interval_ns = (double)GRID_SIM_NS_PER_S / seq->queue->options->decode_tps;
    return seq->first_token_ns + (int64_t)((double)index * interval_ns);
}

/* Moves sequences from the queue into free slots, and starts a prefill if none runs. */
static void promote(struct grid_sim_queue *queue)
{
    struct grid_sim_seq *seq;
    while (queue->running_count < queue->options->max_num_seqs && (seq = TAILQ_FIRST(&queue->waiting))) {
        TAILQ_REMOVE(&queue->waiting, seq, link);
        queue->waiting_count--;
        TAILQ_INSERT_TAIL(&queue->admitted, seq, link);
        seq->stage = GRID_SIM_ADMITTED;
        uint64_t tokens = seq->prompt_tokens + seq->answer_tokens;
        seq->held_blocks = (size_t)((tokens + GRID_SIM_BLOCK_TOKENS - 1) / GRID_SIM_BLOCK_TOKENS);
        queue->running_blocks += seq->held_blocks;
        queue->running_count++;
    }
    prefill_next(queue);
}

static void leave_slot(struct grid_sim_seq *seq)
{
    seq->queue->running_count--;
    seq->queue->running_blocks -= seq->held_blocks;
    seq->stage = GRID_SIM_DONE;
}

static void finish(struct grid_sim_seq *seq)
{
    struct grid_sim_queue *queue = seq->queue;
    leave_slot(seq);
    if (seq->cut)
        queue->stats.finished_length++;
    else
        queue->stats.finished_stop++;
    seq->ops->finished(seq);
    promote(queue);
}

static void write_due(struct grid_sim_seq *seq, int64_t now_ns)
{
    bool ready = true;
    while (seq->written < seq->answer_tokens && due_ns(seq, seq->written) <= now_ns && (ready = seq->ops->ready(seq))) {
        seq->written++;
        seq->queue->stats.generation_tokens++;
        seq->ops->token(seq, seq->written == seq->answer_tokens);
    }
    if (seq->written == seq->answer_tokens) {
        finish(seq);
        return;
    }
    if (!ready) /* all later tokens move: the next one is due an interval from now */
        seq->first_token_ns += now_ns - due_ns(seq, seq->written) + due_ns(seq, 1) - due_ns(seq, 0);
    arm(seq, due_ns(seq, seq->written) - now_ns);
}

static void on_decode(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    write_due(arg, grid_sim_now_ns());
}

static void on_prefilled(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct grid_sim_seq *seq = arg;
    struct grid_sim_queue *queue = seq->queue;
    grid_sim_cache_insert(queue->cache, seq->blocks, seq->block_count);
    queue->prefilling = NULL;
    seq->stage = GRID_SIM_DECODE;
    seq->first_token_ns = grid_sim_now_ns();
    (void)event_assign(&seq->timer, queue->base, -1, 0, on_decode, seq);
    write_due(seq, seq->first_token_ns); /* may free seq */
    prefill_next(queue);
}

static void prefill_next(struct grid_sim_queue *queue)
{
    struct grid_sim_seq *seq = TAILQ_FIRST(&queue->admitted);
    if (queue->prefilling || !seq)
        return;
    TAILQ_REMOVE(&queue->admitted, seq, link);
    queue->prefilling = seq;
    seq->stage = GRID_SIM_PREFILL;
    /* The last token is always computed, as its logits are needed: a block that holds it does not count. */
    size_t usable = (size_t)((seq->prompt_tokens - 1) / GRID_SIM_BLOCK_TOKENS);
    if (usable > seq->block_count)
        usable = seq->block_count;
    seq->cached_tokens = grid_sim_cache_match(queue->cache, seq->blocks, usable) * (uint64_t)GRID_SIM_BLOCK_TOKENS;
    queue->stats.prompt_tokens += seq->prompt_tokens;
    queue->stats.cached_tokens += seq->cached_tokens;
    double prefill_s = (double)(seq->prompt_tokens - seq->cached_tokens) / queue->options->prefill_tps;
    (void)event_assign(&seq->timer, queue->base, -1, 0, on_prefilled, seq);
    arm(seq, (int64_t)fmin(prefill_s * (double)GRID_SIM_NS_PER_S, 9e18));
}

void grid_sim_queue_submit(struct grid_sim_queue *queue, struct grid_sim_seq *seq)
{
    seq->queue = queue;
    seq->stage = GRID_SIM_WAITING;
    TAILQ_INSERT_TAIL(&queue->waiting, seq, link);
    queue->waiting_count++;
    promote(queue);
}

void grid_sim_queue_abort(struct grid_sim_seq *seq)
{
    struct grid_sim_queue *queue = seq->queue;
    switch (seq->stage) {
    case GRID_SIM_NEW:
    case GRID_SIM_DONE:
        return;
    case GRID_SIM_WAITING:
        TAILQ_REMOVE(&queue->waiting, seq, link);
        queue->waiting_count--;
        seq->stage = GRID_SIM_DONE;
        break;
    case GRID_SIM_ADMITTED:
        TAILQ_REMOVE(&queue->admitted, seq, link);
        leave_slot(seq);
        break;
    case GRID_SIM_PREFILL:
        queue->prefilling = NULL;
        (void)event_del(&seq->timer);
        leave_slot(seq);
        break;
    case GRID_SIM_DECODE:
        (void)event_del(&seq->timer);
        leave_slot(seq);
        break;
    }
    queue->stats.aborted++;
    promote(queue);
}
