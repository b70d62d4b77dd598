/*
 * simulate_options.c - options that `simulate` and `tune` share, and the trace that they name
 */
#include "simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_REQUESTS 20000

const char grid_simulate_options_help[] =
    "Arrivals, one of\n"
    "  --trace FILE|-       JSON Lines, in the order of time or not; each line has\n"
    "                         timestamp      milliseconds\n"
    "                         output_length  tokens of the answer (default 256)\n"
    "                         input_length   tokens of the prompt\n"
    "                       and one of\n"
    "                         hash_ids       one id for each 512 tokens (Mooncake)\n"
    "                         keys           one value for each 256 bytes ('keys --trace-secret' writes such lines)\n"
    "                         body           an OpenAI or Anthropic body, with path (default /v1/chat/completions)\n"
    "                       (xz -dc FILE | grid-gateway simulate --trace - reads a packed one)\n"
    "  --make KIND          a generator, see below; --rate R requests a second (default 4)\n"
    "  --requests N         the first N of a file (default all), or so many made (default 20000)\n"
    "  --jitter-ms T        each arrival comes up to T later, by seed: for traces whose clock is coarse (default 0)\n"
    "  --load L[,L…]        speed the arrivals up or down to this share of what the sites can do; default: as they "
    "are\n"
    "  --load-of cold|ideal what the sites can do when nothing is reused (default), or when all is that could be\n"
    "\n"
    "Sites: each of these takes one value, or one for each site, joined by commas\n"
    "  --sites N            how many (default 4)\n"
    "  --prefill T          tokens a second, one prompt at a time (default 10000)\n"
    "  --decode T           tokens a second, of each answer (default 50)\n"
    "  --slots N            requests that run at once (default 64)\n"
    "  --kv-blocks N        KV cache, in blocks of 16 tokens (default 65536)\n"
    "  --delay-ms T         network, one way (default 5)\n"
    "  --max-waiting N      more waiting than this are answered 429; 0: no bound (default 0)\n"
    "\n"
    "Gateway\n"
    "  --policy SPEC        NAME or NAME:setting=value,… ; may be given again (default: all of them)\n"
    "  --replicas N         gateway replicas, each with an index of its own (default 1)\n"
    "  --front any|hash     which replica a request comes to: any (default), or by a hash of its head\n"
    "  --head-blocks N      what a hash of the head sees, in blocks of 256 bytes (default 16)\n"
    "  --poll-ms T          how often each replica reads each site's depth (default 2000)\n"
    "  --signal-delay-ms T  how late a depth arrives on top (default 50)\n"
    "  --waiting MODE       what a site counts as waiting: prefill (default), all whose prefill has not begun, as "
    "vLLM\n"
    "                       does; slots, only those without a slot\n"
    "  --headers WHEN       an answer's head comes with its first-token (default), or early, when the site took it\n"
    "  --seed N             of dice, polls, replicas and generators (default 1)\n"
    "  --repeat N           run with N seeds, from --seed on (default 1)\n";

/* In the order of struct grid_simulate_site. */
static const struct field {
    const char *name;
    double least, most, standard;
    bool whole;
} fields[GRID_SIMULATE_SITE_FIELDS] = {
    {"prefill", 1, 1e9, 10000, false},  {"decode", 0.001, 1e9, 50, false}, {"slots", 1, 1e6, 64, true},
    {"kv-blocks", 1, 1e9, 65536, true}, {"delay-ms", 0, 600000, 5, false}, {"max-waiting", 0, 1e9, 0, true},
};

void grid_simulate_defaults(struct grid_simulate_command *command)
{
    *command = (struct grid_simulate_command){
        .grid = {.n_sites = 4,
                 .replicas = 1,
                 .head_blocks = 16,
                 .poll_ms = 2000,
                 .signal_delay_ms = 50,
                 .speed = 1,
                 .seed = 1},
        .per_second = 4,
        .repeat = 1,
    };
}

/* Numbers joined by commas; how many there were, 0 when one is none or they are too many. */
static size_t numbers(const char *text, double least, double most, bool whole, double *out, size_t room)
{
    for (size_t n = 0; n < room;) {
        char *end;
        out[n] = strtod(text, &end);
        if (end == text || !(out[n] >= least && out[n] <= most) || (whole && out[n] != floor(out[n])))
            return 0;
        n++;
        if (*end == '\0')
            return n;
        if (*end != ',')
            return 0;
        text = end + 1;
    }
    return 0;
}

static enum grid_simulate_option bad(const char *name, const char *takes, char *error, size_t error_size)
{
    (void)snprintf(error, error_size, "--%s takes %s", name, takes);
    return GRID_SIMULATE_OPTION_BAD;
}

static enum grid_simulate_option bad_number(const char *name, double least, double most, bool whole, char *error,
                                            size_t error_size)
{
    (void)snprintf(error, error_size, "--%s takes %s from %g to %g", name, whole ? "a whole number" : "a number", least,
                   most);
    return GRID_SIMULATE_OPTION_BAD;
}

static enum grid_simulate_option site_option(struct grid_simulate_command *command, const char *name, const char *value,
                                             char *error, size_t error_size)
{
    for (size_t i = 0; i < GRID_SIMULATE_SITE_FIELDS; i++) {
        const struct field *field = &fields[i];
        if (strcmp(field->name, name) != 0)
            continue;
        command->n_values[i] =
            numbers(value, field->least, field->most, field->whole, command->values[i], GRID_SIMULATE_MAX_SITES);
        return command->n_values[i] ? GRID_SIMULATE_OPTION_TAKEN
                                    : bad_number(name, field->least, field->most, field->whole, error, error_size);
    }
    return GRID_SIMULATE_OPTION_OTHER;
}

static enum grid_simulate_option number_option(struct grid_simulate_command *command, const char *name,
                                               const char *value, char *error, size_t error_size)
{
    double sites = (double)command->grid.n_sites, replicas = (double)command->grid.replicas;
    double head = (double)command->grid.head_blocks, seed = (double)command->grid.seed;
    double repeat = (double)command->repeat, requests = (double)command->requests;
    const struct row {
        const char *name;
        double least, most, *value;
        bool whole;
    } rows[] = {{"sites", 1, GRID_SIMULATE_MAX_SITES, &sites, true},
                {"replicas", 1, GRID_SIMULATE_MAX_REPLICAS, &replicas, true},
                {"head-blocks", 1, GRID_MAX_KEYS, &head, true},
                {"seed", 0, 9007199254740992.0, &seed, true},
                {"repeat", 1, 1000, &repeat, true},
                {"requests", 1, 1e8, &requests, true},
                {"rate", 1e-6, 1e6, &command->per_second, false},
                {"poll-ms", 1, 3600000, &command->grid.poll_ms, false},
                {"jitter-ms", 0, 3600000, &command->jitter_ms, false},
                {"signal-delay-ms", 0, 3600000, &command->grid.signal_delay_ms, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].name, name) != 0)
            continue;
        if (numbers(value, rows[i].least, rows[i].most, rows[i].whole, rows[i].value, 1) != 1)
            return bad_number(name, rows[i].least, rows[i].most, rows[i].whole, error, error_size);
        command->grid.n_sites = (size_t)sites;
        command->grid.replicas = (size_t)replicas;
        command->grid.head_blocks = (size_t)head;
        command->grid.seed = (uint64_t)seed;
        command->repeat = (size_t)repeat;
        command->requests = (size_t)requests;
        return GRID_SIMULATE_OPTION_TAKEN;
    }
    return GRID_SIMULATE_OPTION_OTHER;
}

static enum grid_simulate_option word_option(struct grid_simulate_command *command, const char *name, const char *value,
                                             char *error, size_t error_size)
{
    const struct row {
        const char *name, *plain, *other, *takes;
        bool *is_other;
    } rows[] = {{"front", "any", "hash", "any or hash", &command->grid.front_hash},
                {"load-of", "cold", "ideal", "cold or ideal", &command->load_of_ideal},
                {"waiting", "prefill", "slots", "prefill or slots", &command->grid.slots_only},
                {"headers", "first-token", "early", "first-token or early", &command->grid.early_headers}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].name, name) != 0)
            continue;
        *rows[i].is_other = strcmp(value, rows[i].other) == 0;
        return *rows[i].is_other || strcmp(value, rows[i].plain) == 0 ? GRID_SIMULATE_OPTION_TAKEN
                                                                      : bad(name, rows[i].takes, error, error_size);
    }
    return GRID_SIMULATE_OPTION_OTHER;
}

enum grid_simulate_option grid_simulate_option(struct grid_simulate_command *command, const char *name,
                                               const char *value, char *error, size_t error_size)
{
    if (strcmp(name, "trace") == 0) {
        command->trace_path = value;
        return GRID_SIMULATE_OPTION_TAKEN;
    }
    if (strcmp(name, "make") == 0) {
        command->make = value;
        return GRID_SIMULATE_OPTION_TAKEN;
    }
    if (strcmp(name, "policy") == 0) {
        if (command->n_policies == GRID_SIMULATE_MAX_POLICIES)
            return bad(name, "at most 64 policies", error, error_size);
        command->policies[command->n_policies++] = value;
        return GRID_SIMULATE_OPTION_TAKEN;
    }
    if (strcmp(name, "load") == 0) {
        const size_t room = sizeof command->loads / sizeof *command->loads;
        command->n_loads = numbers(value, 0.001, 100, false, command->loads, room);
        return command->n_loads ? GRID_SIMULATE_OPTION_TAKEN
                                : bad(name, "at most 16 numbers from 0.001 to 100", error, error_size);
    }
    enum grid_simulate_option taken = site_option(command, name, value, error, error_size);
    if (taken == GRID_SIMULATE_OPTION_OTHER)
        taken = number_option(command, name, value, error, error_size);
    return taken == GRID_SIMULATE_OPTION_OTHER ? word_option(command, name, value, error, error_size) : taken;
}

bool grid_simulate_finish(struct grid_simulate_command *command, char *error, size_t error_size)
{
    if (!command->trace_path == !command->make) {
        (void)snprintf(error, error_size, "needs one of --trace and --make");
        return false;
    }
    for (size_t i = 0; i < GRID_SIMULATE_SITE_FIELDS; i++) {
        size_t n = command->n_values[i];
        if (n > 1 && n != command->grid.n_sites) {
            (void)snprintf(error, error_size, "--%s has %zu values for %zu sites", fields[i].name, n,
                           command->grid.n_sites);
            return false;
        }
        for (size_t s = 0; s < command->grid.n_sites; s++) {
            struct grid_simulate_site *site = &command->grid.sites[s];
            double *values[] = {&site->prefill_tokens_per_second,
                                &site->decode_tokens_per_second,
                                &site->slots,
                                &site->kv_blocks,
                                &site->delay_ms,
                                &site->max_waiting};
            *values[i] = n == 0 ? fields[i].standard : command->values[i][n == 1 ? 0 : s];
        }
    }
    if (command->n_loads == 0)
        command->loads[command->n_loads++] = 0; /* as it is */
    for (size_t i = 0; command->n_policies == 0 && grid_policies[i]; i++)
        command->policies[i] = grid_policies[i]->name;
    while (command->n_policies < GRID_SIMULATE_MAX_POLICIES && command->policies[command->n_policies])
        command->n_policies++;
    return true;
}

bool grid_simulate_trace(const struct grid_simulate_command *command, struct grid_trace *out,
                         struct grid_trace_sums *out_sums, char *error, size_t error_size)
{
    bool good = command->trace_path
                    ? grid_trace_read(command->trace_path, command->requests, out, error, error_size)
                    : grid_trace_make(command->make, command->requests ? command->requests : DEFAULT_REQUESTS,
                                      command->per_second, command->grid.seed, out, error, error_size);
    for (size_t i = 0; good && command->jitter_ms > 0 && i < out->n; i++)
        out->requests[i].at_us +=
            (uint64_t)((double)(grid_trace_mix(command->grid.seed + 7, i) >> 11) * 0x1p-53 * command->jitter_ms * 1000);
    if (good)
        grid_trace_sort(out);
    if (good && !grid_trace_sum(out, out_sums)) {
        (void)snprintf(error, error_size, "out of memory");
        return false;
    }
    return good;
}

double grid_simulate_natural_load(const struct grid_simulate_options *options, const struct grid_trace_sums *sums,
                                  uint64_t reused)
{
    double prefill = 0, decode = 0, slots = 0, n = (double)options->n_sites;
    for (size_t i = 0; i < options->n_sites; i++) {
        prefill += options->sites[i].prefill_tokens_per_second;
        decode += options->sites[i].decode_tokens_per_second;
        slots += options->sites[i].slots;
    }
    double tokens = (double)(sums->input_tokens - reused), seconds = fmax(sums->seconds, 1e-6);
    double by_prefill = tokens / prefill / seconds;
    double slot_seconds = tokens / (prefill / n) + (double)sums->output_tokens / (decode / n);
    return fmax(by_prefill, slot_seconds / slots / seconds);
}

double grid_simulate_speed(const struct grid_simulate_command *command, const struct grid_trace_sums *sums, double load)
{
    if (load <= 0)
        return 1;
    uint64_t reused = command->load_of_ideal ? sums->ideal_hit_tokens : 0;
    return load / grid_simulate_natural_load(&command->grid, sums, reused);
}
