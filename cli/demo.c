/*
 * demo.c - one conversation, three simulated sites, real Envoy: where each turn goes, and why
 *
 * Story     Starts three sites and a gateway as child processes, sends a conversation of eight turns, then makes the
 *           conversation's site so busy that load wins once. Then the same conversation to three fresh sites behind a
 *           gateway with affinity off. Closes with what that saved, and goes on serving until Ctrl-C.
 *           Other people's requests go straight to two of the three sites before each turn, a different two each time:
 *           they queue there for a moment, so the least queued site is another one from turn to turn.
 * Promise   What is printed was measured: the site is the answer's x-grid-site, the outcome is what the gateway counted
 *           on its /metrics, the depths are its grid_route_site_score, tokens are the site's own usage. Run, blocks and
 *           worth come from the same core, asked in this process about the same requests with the same depths; when
 *           it and the gateway disagree, the demo fails. No process and no file is left behind.
 * Not here  Processes (demo_grid.c), HTTP (demo_client.c), texts (demo_talk.c), the core (demo_twin.c), lines
 *           (demo_print.c).
 */
#include "cli.h"
#include "demo_print.h"
#include "demo_talk.h"
#include "demo_twin.h"

#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_TOKENS 32u
#define NEIGHBOUR_TOKENS 20u                           /* 0.2 s: several polls see the one that waits */
#define NEIGHBOURS_A_SITE (GRID_DEMO_MAX_NUM_SEQS + 1) /* the last one waits */
#define BURST_REQUESTS (GRID_DEMO_MAX_NUM_SEQS + 8)
#define BURST_TOKENS 4000u /* runs until it is cancelled */
#define CALL_LIMIT_S 30.0
#define DEPTH_LIMIT_S 10.0
#define CROWD_LIMIT_S 1.0 /* the window: later nothing is left to be seen */
#define CROWD_TRIES 4
#define COUNT_LIMIT_S 5.0
#define TURN_MS 15

struct demo {
    struct grid_client_loop loop;
    char root[GRID_DEMO_DIR_BYTES - 16];
    struct grid_demo_grid with, without;
    struct grid_demo_twin twin; /* of the gateway with affinity */
    unsigned neighbours;
    char error[GRID_DEMO_ERROR_BYTES];
};

static bool fail(struct demo *demo, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(struct demo *demo, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(demo->error, sizeof demo->error, format, args);
    va_end(args);
    return false;
}

/* Lets events happen for a moment; false when the demo was stopped or a process has ended. */
static bool go_on(struct demo *demo, struct grid_demo_grid *grid)
{
    if (!grid_client_loop_turn(&demo->loop, TURN_MS))
        return fail(demo, "interrupted");
    return grid_demo_grid_alive(grid, demo->error);
}

/* ---- other people -------------------------------------------------------------------------------------------- */

/* Starts n requests straight at a site, into calls. */
static bool start_requests(struct demo *demo, const struct grid_demo_child *site, unsigned n, unsigned tokens,
                           struct grid_client_call **calls)
{
    for (unsigned i = 0; i < n; i++) {
        char *body = grid_demo_talk_neighbour(demo->neighbours++, tokens);
        calls[i] = body != NULL ? grid_client_start(&demo->loop, site->port, "/v1/chat/completions", body) : NULL;
        free(body);
        if (calls[i] == NULL)
            return fail(demo, "no memory");
    }
    return true;
}

static bool all_done(struct grid_client_call *const *calls, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (calls[i] != NULL && !calls[i]->done)
            return false;
    return true;
}

static void end_requests(struct grid_client_call **calls, size_t n)
{
    for (size_t i = 0; i < n; i++)
        grid_client_end(calls[i]);
}

/* Waits until the gateway sees at least least[i] at each site, and 0 where that is 0; then *out_view is what it saw. */
static bool wait_for_depths(struct demo *demo, struct grid_demo_grid *grid, const double *least, double limit_s,
                            struct grid_demo_view *out_view)
{
    double end_s = grid_client_now() + limit_s;
    *out_view = (struct grid_demo_view){.depths = {NAN, NAN, NAN}};
    while (grid_client_now() < end_s) {
        bool good = grid_demo_grid_look(grid, &demo->loop, out_view);
        for (size_t i = 0; good && i < GRID_DEMO_SITES; i++)
            good = least[i] > 0 ? out_view->depths[i] >= least[i] : out_view->depths[i] <= 0;
        if (good)
            return true;
        if (!go_on(demo, grid))
            return false;
    }
    return fail(demo, "the gateway did not see the expected queues; it sees %g/%g/%g", out_view->depths[0],
                out_view->depths[1], out_view->depths[2]);
}

/* Short requests at every site whose least is above 0; returns when all are answered. */
static bool crowd(struct demo *demo, struct grid_demo_grid *grid, const double *least)
{
    struct grid_client_call *calls[GRID_DEMO_SITES * NEIGHBOURS_A_SITE] = {NULL};
    size_t n = 0;
    bool good = true;
    for (size_t i = 0; good && i < GRID_DEMO_SITES; i++) {
        if (least[i] <= 0)
            continue;
        good = start_requests(demo, &grid->sites[i], NEIGHBOURS_A_SITE, NEIGHBOUR_TOKENS, calls + n);
        n += NEIGHBOURS_A_SITE;
    }
    while (good && !all_done(calls, n))
        good = go_on(demo, grid);
    for (size_t i = 0; good && i < n; i++)
        if (calls[i]->trouble[0] != '\0' || calls[i]->status != 200)
            good = fail(demo, "a request straight to a site failed: %d %s", calls[i]->status, calls[i]->trouble);
    end_requests(calls, n);
    return good;
}

/* A crowd at every site but one has come and gone, and the gateway still sees its queue in the window. On a busy
 * machine no poll may have met the queue: then once more. */
static bool crowd_others(struct demo *demo, struct grid_demo_grid *grid, size_t quiet, struct grid_demo_view *out_view)
{
    static const double none[GRID_DEMO_SITES] = {0};
    double least[GRID_DEMO_SITES];
    for (size_t i = 0; i < GRID_DEMO_SITES; i++)
        least[i] = i == quiet ? 0 : 1;
    for (unsigned i = 0; i < CROWD_TRIES; i++) {
        if (!wait_for_depths(demo, grid, none, DEPTH_LIMIT_S, out_view) || !crowd(demo, grid, least))
            return false;
        if (wait_for_depths(demo, grid, least, CROWD_LIMIT_S, out_view))
            return true;
        if (demo->loop.stopped)
            return false;
    }
    return false;
}

/* ---- one turn ------------------------------------------------------------------------------------------------ */

static size_t site_index(const char *name)
{
    size_t i = 0;
    while (i < GRID_DEMO_SITES && strcmp(name, grid_demo_site_names[i]) != 0)
        i++;
    return i;
}

/* Sends the body and waits for all of the answer. The caller ends *out_call. */
static bool send_turn(struct demo *demo, const struct grid_demo_grid *grid, const char *body,
                      struct grid_client_call **out_call)
{
    struct grid_client_call *call =
        grid_client_fetch(&demo->loop, grid->port, "/v1/chat/completions", body, CALL_LIMIT_S);
    *out_call = call;
    if (call == NULL)
        return fail(demo, "%s", demo->loop.stopped ? "interrupted" : "no memory");
    if (call->status != 200 || call->trouble[0] != '\0')
        return fail(demo, "the gateway answered %d %s", call->status, call->trouble);
    if (call->first_s <= 0 || call->prompt_tokens == 0)
        return fail(demo, "the answer has no words or no usage");
    return true;
}

/* Which outcome the gateway counted since `before`. With affinity off it counts none, and must not. */
static bool find_outcome(struct demo *demo, struct grid_demo_grid *grid, const struct grid_demo_view *before,
                         enum grid_outcome *out_outcome)
{
    double end_s = grid_client_now() + COUNT_LIMIT_S;
    while (grid_client_now() < end_s) {
        struct grid_demo_view after;
        uint64_t counted = 0;
        bool seen = grid_demo_grid_look(grid, &demo->loop, &after);
        *out_outcome = GRID_OUTCOME_UNCOUNTED;
        for (int i = 0; seen && i < GRID_N_OUTCOMES; i++)
            if (after.outcomes[i] > before->outcomes[i]) {
                counted += after.outcomes[i] - before->outcomes[i];
                *out_outcome = (enum grid_outcome)i;
            }
        if (counted > (grid->affinity ? 1u : 0u))
            return fail(demo, "the gateway counted %u outcomes for one request", (unsigned)counted);
        if (seen && (counted == 1 || !grid->affinity))
            return true;
        if (!go_on(demo, grid))
            return false;
    }
    return fail(demo, "the gateway counted no outcome on its /metrics");
}

/* What the core says must be what the gateway did. */
static bool compare(struct demo *demo, const struct grid_decision *core, const struct grid_demo_turn *turn)
{
    const char *did = turn->site < GRID_DEMO_SITES ? grid_demo_site_names[turn->site] : "?";
    if (core->action == GRID_FORWARD && core->outcome == turn->outcome && core->site.len == strlen(did) &&
        memcmp(core->site.ptr, did, core->site.len) == 0)
        return true;
    return fail(demo, "turn %u: the gateway went to %s (%s), the same core in this process to %.*s (%s)", turn->number,
                did, grid_outcome_name(turn->outcome), (int)core->site.len, core->site.len ? core->site.ptr : "",
                grid_outcome_name(core->outcome));
}

/* Asks the next question, prints where it went, keeps the answer in the conversation. */
static bool take_turn(struct demo *demo, struct grid_demo_grid *grid, json_t *messages,
                      const struct grid_demo_view *view, struct grid_demo_turn *turn)
{
    struct grid_client_call *call = NULL;
    struct grid_decision decision = {.worth = NAN};
    char *body = grid_demo_talk_ask(messages, turn->number) ? grid_demo_talk_body(messages, ANSWER_TOKENS) : NULL;
    bool good = body != NULL || fail(demo, "no memory");
    if (good && grid->affinity && !grid_demo_twin_ask(&demo->twin, body, view->depths, &decision))
        good = fail(demo, "no memory");
    good = good && send_turn(demo, grid, body, &call);
    if (good) {
        memcpy(turn->depths, view->depths, sizeof turn->depths);
        turn->site = site_index(call->site);
        turn->prompt_tokens = call->prompt_tokens;
        turn->cached_tokens = call->cached_tokens;
        turn->first_s = call->first_s - call->sent_s;
        turn->run = decision.run;
        turn->blocks = decision.blocks;
        turn->worth = decision.worth;
        good = find_outcome(demo, grid, view, &turn->outcome);
    }
    good = good && (!grid->affinity || compare(demo, &decision, turn));
    if (good) {
        grid_demo_print_turn(turn);
        good = grid_demo_talk_hear(messages, call->text.ptr, call->text.len) || fail(demo, "no memory");
    }
    grid_demo_twin_settle(&demo->twin, call != NULL ? call->status : 0);
    grid_client_end(call);
    free(body);
    return good;
}

/* ---- the story ----------------------------------------------------------------------------------------------- */

static bool converse(struct demo *demo, struct grid_demo_grid *grid, json_t *messages,
                     struct grid_demo_turn turns[GRID_TALK_TURNS])
{
    grid_demo_print_columns();
    for (unsigned i = 0; i < GRID_TALK_TURNS; i++) {
        static const double none[GRID_DEMO_SITES] = {0};
        struct grid_demo_view view;
        turns[i] = (struct grid_demo_turn){.number = i + 1};
        bool ready = i == 0 ? wait_for_depths(demo, grid, none, DEPTH_LIMIT_S, &view)
                            : crowd_others(demo, grid, i % GRID_DEMO_SITES, &view);
        if (!ready || !take_turn(demo, grid, messages, &view, &turns[i]))
            return false;
    }
    return true;
}

/* Fills the queue of the conversation's site and asks once more. */
static bool burst(struct demo *demo, struct grid_demo_grid *grid, json_t *messages, size_t site,
                  struct grid_demo_turn *turn)
{
    static const double none[GRID_DEMO_SITES] = {0};
    struct grid_client_call *calls[BURST_REQUESTS] = {NULL};
    struct grid_demo_view view;
    double least[GRID_DEMO_SITES] = {0};
    least[site] = BURST_REQUESTS - GRID_DEMO_MAX_NUM_SEQS;
    *turn = (struct grid_demo_turn){.number = GRID_TALK_TURNS + 1};
    bool good = wait_for_depths(demo, grid, none, DEPTH_LIMIT_S, &view) &&
                start_requests(demo, &grid->sites[site], BURST_REQUESTS, BURST_TOKENS, calls) &&
                wait_for_depths(demo, grid, least, DEPTH_LIMIT_S, &view) &&
                take_turn(demo, grid, messages, &view, turn);
    end_requests(calls, BURST_REQUESTS);
    return good;
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static struct grid_demo_sum add_up(const struct grid_demo_turn turns[GRID_TALK_TURNS])
{
    struct grid_demo_sum sum = {.turns = GRID_TALK_TURNS};
    double times[GRID_TALK_TURNS - 1];
    bool seen[GRID_DEMO_SITES + 1] = {false};
    for (size_t i = 0; i < GRID_TALK_TURNS; i++) {
        sum.prompt_tokens += turns[i].prompt_tokens;
        sum.cached_tokens += turns[i].cached_tokens;
        sum.sites += seen[turns[i].site] ? 0 : 1;
        seen[turns[i].site] = true;
        if (i > 0)
            times[i - 1] = turns[i].first_s;
    }
    qsort(times, GRID_TALK_TURNS - 1, sizeof *times, compare_doubles);
    sum.median_s = times[(GRID_TALK_TURNS - 1) / 2];
    sum.worst_s = times[GRID_TALK_TURNS - 2];
    return sum;
}

/* The closing lines; false when the conversation did not stick, or load did not win. */
static bool judge(const struct grid_demo_turn *turns, const struct grid_demo_turn *burst_turn,
                  const struct grid_demo_sum *with, const struct grid_demo_sum *without)
{
    unsigned stuck = 0;
    for (size_t i = 1; i < GRID_TALK_TURNS; i++)
        stuck += turns[i].site == turns[0].site && turns[i].outcome == GRID_OUTCOME_STICKY ? 1 : 0;
    grid_demo_print_note("%+lld prompt tokens did not have to be prefilled; the median first token came %.1f times as "
                         "fast.",
                         (long long)with->cached_tokens - (long long)without->cached_tokens,
                         without->median_s / with->median_s);
    if (stuck != GRID_TALK_TURNS - 1) {
        grid_demo_print_verdict(false, "%u of %u turns from turn two on stayed at %s.", stuck, GRID_TALK_TURNS - 1,
                                grid_demo_site_names[turns[0].site]);
        return false;
    }
    if (burst_turn->outcome != GRID_OUTCOME_LOAD_OVERRIDE || burst_turn->site == turns[0].site) {
        grid_demo_print_verdict(false, "load did not win when the queue at %s was %g deep.",
                                grid_demo_site_names[turns[0].site], burst_turn->depths[turns[0].site]);
        return false;
    }
    grid_demo_print_verdict(true, "all %u turns from turn two on stayed at %s, and left it when its queue was %g.",
                            stuck, grid_demo_site_names[turns[0].site], burst_turn->depths[turns[0].site]);
    return true;
}

static bool start(struct demo *demo, struct grid_demo_grid *grid, const char *name, int port, bool affinity)
{
    char dir[GRID_DEMO_DIR_BYTES];
    (void)snprintf(dir, sizeof dir, "%s/%s", demo->root, name);
    return grid_demo_grid_start(grid, &demo->loop, dir, port, affinity, demo->error);
}

static void introduce(const struct demo *demo)
{
    grid_demo_print_note(
        "Serving on http://127.0.0.1:%d. Exploration is set to 0 here: no turn is drawn to go by load.\n"
        "Before each turn but the first, other people's requests queue for a moment at two of the\n"
        "sites, another two each time, with affinity and without.",
        demo->with.port);
    grid_demo_print_heading("A conversation, with prefix affinity");
}

static bool tell(struct demo *demo, int port, bool *out_stuck)
{
    struct grid_demo_turn with[GRID_TALK_TURNS], without[GRID_TALK_TURNS], ninth;
    json_t *first = grid_demo_talk_new(), *second = grid_demo_talk_new();
    bool good = (first != NULL && second != NULL) || fail(demo, "no memory");
    grid_demo_print_note("Starting the gateway and three simulated sites (%u tokens of prefill a second, %u at "
                         "once).",
                         GRID_DEMO_PREFILL_TPS, GRID_DEMO_MAX_NUM_SEQS);
    good = good && start(demo, &demo->with, "with", port, true) &&
           grid_demo_twin_load(&demo->twin, &demo->with, demo->error);
    if (good)
        introduce(demo);
    good = good && converse(demo, &demo->with, first, with);
    if (good)
        grid_demo_print_heading("A burst at its site: is the match still worth the wait?");
    good = good && burst(demo, &demo->with, first, with[0].site, &ninth);
    if (good)
        grid_demo_print_heading("The same conversation, fresh sites, prefix affinity off");
    good = good && start(demo, &demo->without, "without", 0, false) && converse(demo, &demo->without, second, without);
    grid_demo_grid_stop(&demo->without);
    if (good) {
        struct grid_demo_sum sum_with = add_up(with), sum_without = add_up(without);
        grid_demo_print_heading("What it saved, in the eight turns");
        grid_demo_print_sums(&sum_with, &sum_without);
        *out_stuck = judge(with, &ninth, &sum_with, &sum_without);
    }
    json_decref(first);
    json_decref(second);
    return good;
}

static bool serve(struct demo *demo)
{
    grid_demo_print_heading("Still serving; Ctrl-C ends it. Try:");
    grid_demo_print_note("  curl -si http://127.0.0.1:%d/v1/chat/completions -H 'content-type: application/json' \\\n"
                         "    -d '{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n"
                         "  curl -s http://127.0.0.1:%d/metrics | grep grid_route",
                         demo->with.port, GRID_DEMO_MODEL, demo->with.ops_port);
    while (grid_client_loop_turn(&demo->loop, 200))
        if (!grid_demo_grid_alive(&demo->with, demo->error))
            return false;
    return true;
}

/* ---- the verb ------------------------------------------------------------------------------------------------ */

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about;
    (void)kind;
    (void)where;
    (void)remove(path);
    return 0;
}

static int run_demo(bool leave, int port)
{
    struct demo *demo = calloc(1, sizeof *demo);
    const char *tmp = getenv("TMPDIR");
    bool stuck = false, good = demo != NULL;
    if (!good)
        return GRID_EXIT_FAILED;
    int len = snprintf(demo->root, sizeof demo->root, "%s/grid-demo-XXXXXX", tmp != NULL && *tmp ? tmp : "/tmp");
    if (!grid_client_loop_init(&demo->loop))
        good = fail(demo, "no event loop");
    else if (len < 0 || (size_t)len >= sizeof demo->root || mkdtemp(demo->root) == NULL)
        good = fail(demo, "cannot make a temporary folder: %s", strerror(errno));
    if (good) {
        good = tell(demo, port, &stuck);
        if (good && !leave)
            good = serve(demo);
        grid_demo_grid_stop(&demo->without);
        grid_demo_grid_stop(&demo->with);
        (void)nftw(demo->root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
    if (!good)
        fprintf(stderr, "grid-gateway demo: %s\n", demo->error);
    grid_demo_twin_done(&demo->twin);
    grid_client_loop_done(&demo->loop);
    free(demo);
    return good && stuck ? GRID_EXIT_OK : GRID_EXIT_FAILED;
}

static void usage(FILE *to)
{
    fputs("usage: grid-gateway demo [--exit] [--port PORT]\n"
          "\n"
          "Starts three simulated sites and a gateway in front of them, sends a conversation of eight turns, shows\n"
          "where each turn went and why, makes the site so busy that load wins once, repeats the conversation\n"
          "with affinity off, and goes on serving until Ctrl-C.\n"
          "\n"
          "  --exit        end after the comparison (also with DEMO_EXIT=1 in the environment)\n"
          "  --port PORT   where the gateway listens on 127.0.0.1 (default: a free port)\n"
          "\n"
          "Columns: run/blocks, how many leading blocks of 256 bytes the best site holds, of how many in the prompt;\n"
          "queues, the windowed worst queue depth at each site as the gateway saw it; worth, how many queued requests\n"
          "the match is worth; prompt and cached, tokens by the site's own usage; first token, in seconds.\n"
          "\n"
          "Exit status: 0, the conversation stuck from turn two on and load won once; 1, it did not, or something\n"
          "failed (standard error says what); 2, the command line is wrong.\n",
          to);
}

int grid_cmd_demo(int argc, char **argv)
{
    static const struct option options[] = {{"exit", no_argument, NULL, 'e'},
                                            {"port", required_argument, NULL, 'p'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    const char *variable = getenv("DEMO_EXIT");
    bool leave = variable != NULL && strcmp(variable, "1") == 0;
    long port = 0;
    char *end = NULL;
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        switch (option) {
        case 'e':
            leave = true;
            break;
        case 'p':
            port = strtol(optarg, &end, 10);
            if (*optarg == '\0' || *end != '\0' || port < 1 || port > 65535) {
                fprintf(stderr, "grid-gateway demo: --port must be from 1 to 65535\n");
                return GRID_EXIT_USAGE;
            }
            break;
        case 'h':
            usage(stdout);
            return GRID_EXIT_OK;
        default:
            fprintf(stderr, "Try 'grid-gateway demo --help'.\n");
            return GRID_EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "grid-gateway demo: takes no argument\nTry 'grid-gateway demo --help'.\n");
        return GRID_EXIT_USAGE;
    }
    return run_demo(leave, (int)port);
}
