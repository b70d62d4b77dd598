/*
 * main.c - the verb `sim-site`: options in, a serving site out
 *
 * Story     Reads the options, binds, prints where it listens, runs the loop until SIGTERM or SIGINT, frees everything.
 * Promise   Standard output carries just the line `listening on HOST:PORT`. Exit 0 stopped, 1 cannot bind, 2 usage.
 * Not here  HTTP (http.c), the engine (queue.c).
 */
#include "sim.h"
#include "store.h"

#include <errno.h>
#include <event2/listener.h>
#include <getopt.h>
#include <math.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum {
    EXIT_STOPPED = 0,
    EXIT_CANNOT_BIND = 1,
    EXIT_BAD_USAGE = 2,
    LISTEN_BACKLOG = 4096,
    MAX_HEADER_BYTES = 256 * 1024,
    MAX_BODY_BYTES = 128 * 1024 * 1024,
    IDLE_S = 24 * 3600, /* a queued request may well wait longer than evhttp's 50 s */
    MAX_HOST_BYTES = 256,
};

static const uint64_t MAX_CACHE_BLOCKS = 1ULL << 26;

static const char HELP[] =
    "Usage: grid-gateway sim-site [OPTION]...\n"
    "\n"
    "Serves a simulated inference site: an OpenAI-compatible server with a prefix cache, a queue and the speed of\n"
    "an engine, but without a model. Answers are plain words. Use it to try a gateway without a GPU.\n"
    "\n"
    "  --listen HOST:PORT    where to serve; port 0 takes a free one (default 127.0.0.1:0)\n"
    "  --name NAME           the site's name, sent as x-sim-site (default sim)\n"
    "  --model NAME          a model that is served; may be repeated (default sim-model)\n"
    "  --prefill-tps N       prompt tokens a second; only tokens not in the cache count (default 10000)\n"
    "  --decode-tps N        tokens a second that one answer is written at (default 50)\n"
    "  --max-num-seqs N      requests that run at once, the others wait (default 8)\n"
    "  --cache-blocks N      capacity of the prefix cache in blocks of 16 tokens (default 65536)\n"
    "  --store-count N       responses and conversations kept, the oldest go first; 0 keeps none (default 4096)\n"
    "  --store-bytes N       bytes of text kept with them (default 67108864)\n"
    "  --seed N              changes the words of the answers (default 0)\n"
    "  --help                this text\n"
    "\n"
    "Four bytes of the prompt are one token. The answer has 32 tokens, or exactly max_tokens.\n"
    "\n"
    "Serves     POST /v1/chat/completions, POST /v1/completions, GET /v1/models, GET /health, GET /metrics,\n"
    "           /v1/responses (create, stream, background, retrieve, delete, cancel, input_items, compact,\n"
    "           input_tokens), /v1/conversations (create, retrieve, update, delete, items), kept in memory\n"
    "State      GET /sim/state   POST /sim/reset (empties the cache, zeroes the counters)\n"
    "Load       POST /sim/load {\"waiting\":12}   adds so many waiting requests to the metric\n"
    "Failures   POST /sim/faults {\"status\":503,\"body\":...,\"retry_after\":2,\"delay_ms\":100,\"reset\":true,\n"
    "           \"drop_after_events\":3,\"times\":1,\"path\":\"/metrics\"}   DELETE /sim/faults\n"
    "           or with one request the header x-sim-fault: status=503 | reset | delay=500 | drop=3 (comma between)\n"
    "Echo       with the header x-sim-echo: 1 a POST is answered by its own body\n"
    "\n"
    "Prints `listening on HOST:PORT` when ready. Exit status: 0 stopped by a signal, 1 cannot bind, 2 wrong usage.\n"
    "\n"
    "Example: grid-gateway sim-site --listen 127.0.0.1:9001 --name a --model small\n"
    "         curl http://127.0.0.1:9001/v1/chat/completions -H 'content-type: application/json' \\\n"
    "           -d '{\"model\":\"small\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}'\n";

enum option_id {
    OPT_LISTEN = 1,
    OPT_NAME,
    OPT_MODEL,
    OPT_PREFILL_TPS,
    OPT_DECODE_TPS,
    OPT_MAX_NUM_SEQS,
    OPT_CACHE_BLOCKS,
    OPT_STORE_COUNT,
    OPT_STORE_BYTES,
    OPT_SEED,
    OPT_HELP,
};

static bool read_speed(const char *text, double *out)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || errno || !isfinite(value) || value < 1e-3 || value > 1e12)
        return false;
    *out = value;
    return true;
}

static bool read_count(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value < least || value > most)
        return false;
    *out = value;
    return true;
}

/* A name goes into a response header: printable ASCII only. */
static bool read_name(const char *text, const char **out)
{
    if (!*text)
        return false;
    for (const char *at = text; *at; at++) {
        if (*at < ' ' || *at > '~')
            return false;
    }
    *out = text;
    return true;
}

static bool read_model(const char *text, struct grid_sim_options *options)
{
    if (!*text || options->model_count == GRID_SIM_MAX_MODELS)
        return false;
    json_t *utf8 = json_string(text);
    json_decref(utf8);
    if (utf8)
        options->models[options->model_count++] = text;
    return utf8 != NULL;
}

static bool read_option(int id, const char *text, struct grid_sim_options *options)
{
    switch ((enum option_id)id) {
    case OPT_LISTEN:
        options->listen = text;
        return strrchr(text, ':') != NULL;
    case OPT_NAME:
        return read_name(text, &options->name);
    case OPT_MODEL:
        return read_model(text, options);
    case OPT_PREFILL_TPS:
        return read_speed(text, &options->prefill_tps);
    case OPT_DECODE_TPS:
        return read_speed(text, &options->decode_tps);
    case OPT_MAX_NUM_SEQS:
        return read_count(text, 1, UINT32_MAX, &options->max_num_seqs);
    case OPT_CACHE_BLOCKS:
        return read_count(text, 1, MAX_CACHE_BLOCKS, &options->cache_blocks);
    case OPT_STORE_COUNT:
        return read_count(text, 0, UINT32_MAX, &options->store_count);
    case OPT_STORE_BYTES:
        return read_count(text, 0, UINT32_MAX, &options->store_bytes);
    case OPT_SEED:
        return read_count(text, 0, UINT64_MAX, &options->seed);
    case OPT_HELP:
        return true;
    }
    return false;
}

/* -1: go on; else the exit status. */
static int read_options(int argc, char **argv, struct grid_sim_options *options)
{
    static const struct option known[] = {
        {"listen", required_argument, NULL, OPT_LISTEN},
        {"name", required_argument, NULL, OPT_NAME},
        {"model", required_argument, NULL, OPT_MODEL},
        {"prefill-tps", required_argument, NULL, OPT_PREFILL_TPS},
        {"decode-tps", required_argument, NULL, OPT_DECODE_TPS},
        {"max-num-seqs", required_argument, NULL, OPT_MAX_NUM_SEQS},
        {"cache-blocks", required_argument, NULL, OPT_CACHE_BLOCKS},
        {"store-count", required_argument, NULL, OPT_STORE_COUNT},
        {"store-bytes", required_argument, NULL, OPT_STORE_BYTES},
        {"seed", required_argument, NULL, OPT_SEED},
        {"help", no_argument, NULL, OPT_HELP},
        {NULL, 0, NULL, 0},
    };
    int id;
    int index = 0;
    optind = 0; /* the caller may have used getopt on its own arguments */
    while ((id = getopt_long(argc, argv, "", known, &index)) != -1) {
        if (id == OPT_HELP)
            return fputs(HELP, stdout) < 0 ? EXIT_CANNOT_BIND : EXIT_STOPPED;
        if (id == '?')
            break;
        if (!read_option(id, optarg, options)) {
            (void)fprintf(stderr, "sim-site: --%s: bad value '%s'\n", known[index].name, optarg);
            break;
        }
    }
    if (id == -1 && optind < argc)
        (void)fprintf(stderr, "sim-site: unexpected argument '%s'\n", argv[optind]);
    if (id != -1 || optind < argc) {
        (void)fputs("Try 'grid-gateway sim-site --help'.\n", stderr);
        return EXIT_BAD_USAGE;
    }
    if (options->model_count == 0)
        options->models[options->model_count++] = "sim-model";
    return -1;
}

/* Splits HOST:PORT or [HOST]:PORT and resolves it. NULL: it said why. */
static struct addrinfo *resolve(const char *listen_on)
{
    char host[MAX_HOST_BYTES];
    const char *colon = strrchr(listen_on, ':');
    (void)snprintf(host, sizeof host, "%.*s", (int)(colon - listen_on), listen_on);
    char *name = host;
    size_t length = strlen(host);
    if (length > 1 && host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = '\0';
        name++;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(*name ? name : NULL, colon + 1, &hints, &found);
    if (error) {
        (void)fprintf(stderr, "sim-site: cannot bind %s: %s\n", listen_on, gai_strerror(error));
        return NULL;
    }
    return found;
}

static void announce(const char *listen_on, evutil_socket_t fd)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char port[NI_MAXSERV] = "0";
    if (getsockname(fd, (struct sockaddr *)&address, &length) == 0)
        (void)getnameinfo((struct sockaddr *)&address, length, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    (void)printf("listening on %.*s:%s\n", (int)(strrchr(listen_on, ':') - listen_on), listen_on, port);
    (void)fflush(stdout);
}

static bool bind_server(struct evhttp *http, struct event_base *base, const char *listen_on)
{
    struct addrinfo *address = resolve(listen_on);
    if (!address)
        return false;
    struct evconnlistener *listener =
        evconnlistener_new_bind(base, NULL, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE,
                                LISTEN_BACKLOG, address->ai_addr, (int)address->ai_addrlen);
    int error = errno;
    freeaddrinfo(address);
    if (!listener) {
        (void)fprintf(stderr, "sim-site: cannot bind %s: %s\n", listen_on, strerror(error));
        return false;
    }
    if (!evhttp_bind_listener(http, listener))
        abort();
    /* Connections take it over: as an engine's, a token does not wait until the one before is acknowledged. */
    const int on = 1;
    (void)setsockopt(evconnlistener_get_fd(listener), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    announce(listen_on, evconnlistener_get_fd(listener));
    return true;
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)event_base_loopbreak(arg);
}

static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static struct event_base *new_base(void)
{
    struct event_config *config = event_config_new();
    if (!config || event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER) != 0)
        abort();
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    if (!base)
        abort();
    return base;
}

static int serve(const struct grid_sim_options *options)
{
    struct event_base *base = new_base();
    struct evhttp *http = evhttp_new(base);
    struct event *term = evsignal_new(base, SIGTERM, on_signal, base);
    struct event *interrupt = evsignal_new(base, SIGINT, on_signal, base);
    if (!http || !term || !interrupt || event_add(term, NULL) != 0 || event_add(interrupt, NULL) != 0)
        abort();
    struct grid_sim_cache *cache = grid_sim_cache_new((size_t)options->cache_blocks);
    struct grid_sim_server server;
    grid_sim_server_init(&server, options);
    server.base = base;
    grid_sim_queue_init(&server.queue, base, cache, options);
    struct grid_sim_store store;
    grid_sim_store_init(&store, (size_t)options->store_count, (size_t)options->store_bytes);
    server.store = &store;
    evhttp_set_timeout(http, IDLE_S);
    evhttp_set_max_headers_size(http, MAX_HEADER_BYTES);
    evhttp_set_max_body_size(http, MAX_BODY_BYTES);
    grid_sim_http_attach(&server, http);
    int status = EXIT_CANNOT_BIND;
    if (bind_server(http, base, options->listen)) {
        (void)event_base_dispatch(base);
        status = EXIT_STOPPED;
    }
    evhttp_free(http);            /* ends what is still open, which takes it out of the queue */
    grid_sim_store_clear(&store); /* and so what runs in the background */
    grid_sim_fault_clear(&server);
    grid_sim_cache_free(cache);
    event_free(term);
    event_free(interrupt);
    event_base_free(base);
    return status;
}

int grid_sim_main(int argc, char **argv)
{
    struct grid_sim_options options = {
        .listen = "127.0.0.1:0",
        .name = "sim",
        .prefill_tps = 10000,
        .decode_tps = 50,
        .max_num_seqs = 8,
        .cache_blocks = 65536,
        .store_count = GRID_SIM_DEFAULT_STORE_COUNT,
        .store_bytes = GRID_SIM_DEFAULT_STORE_BYTES,
    };
    int status = read_options(argc, argv, &options);
    if (status >= 0)
        return status;
    (void)signal(SIGPIPE, SIG_IGN);
    raise_file_limit();
    return serve(&options);
}
