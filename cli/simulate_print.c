/*
 * simulate_print.c - what came out, as a table and as JSON
 */
#include "simulate.h"

#include "query.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_JSON_BYTES ((size_t)1 << 30)

void grid_simulate_result_done(struct grid_simulate_result *result)
{
    free(result->ttft_s);
    free(result->e2e_s);
    free(result->samples);
    *result = (struct grid_simulate_result){0};
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

double grid_simulate_quantile(const float *sorted, size_t n, double quantile)
{
    if (n == 0)
        return NAN;
    size_t at = (size_t)ceil(quantile * (double)n);
    return (double)sorted[at ? at - 1 : 0];
}

double grid_simulate_hit_rate(const struct grid_simulate_result *r)
{
    return r->input_tokens ? (double)r->hit_tokens / (double)r->input_tokens : NAN;
}

double grid_simulate_ttft_mean(const struct grid_simulate_result *r)
{
    return r->ttft_mean_s;
}

double grid_simulate_ttft_p50(const struct grid_simulate_result *r)
{
    return grid_simulate_quantile(r->ttft_s, r->answered, 0.5);
}

double grid_simulate_ttft_p90(const struct grid_simulate_result *r)
{
    return grid_simulate_quantile(r->ttft_s, r->answered, 0.9);
}

double grid_simulate_ttft_p99(const struct grid_simulate_result *r)
{
    return grid_simulate_quantile(r->ttft_s, r->answered, 0.99);
}

static double e2e_mean(const struct grid_simulate_result *r)
{
    return r->e2e_mean_s;
}

static double e2e_p50(const struct grid_simulate_result *r)
{
    return grid_simulate_quantile(r->e2e_s, r->answered, 0.5);
}

static double e2e_p99(const struct grid_simulate_result *r)
{
    return grid_simulate_quantile(r->e2e_s, r->answered, 0.99);
}

static double spread(const struct grid_simulate_result *r)
{
    return r->spread_mean;
}

static double spread_p99(const struct grid_simulate_result *r)
{
    return r->spread_p99;
}

static double imbalance(const struct grid_simulate_result *r)
{
    return r->imbalance;
}

static double share_most(const struct grid_simulate_result *r)
{
    return r->share_most;
}

static double refused(const struct grid_simulate_result *r)
{
    return r->n ? (double)r->refused / (double)r->n : NAN;
}

struct grid_simulate_figure grid_simulate_figure(const struct grid_simulate_result *results, size_t n,
                                                 double (*of)(const struct grid_simulate_result *))
{
    struct grid_simulate_figure figure = {0, INFINITY, -INFINITY};
    for (size_t i = 0; i < n; i++) {
        double value = of(&results[i]);
        figure.mean += value / (double)n;
        figure.least = fmin(figure.least, value);
        figure.most = fmax(figure.most, value);
    }
    return figure;
}

/* One table for both outputs. */
static const struct column {
    const char *head, *json;
    double (*of)(const struct grid_simulate_result *);
    double scale;
    int decimals;
} columns[] = {
    {"hit %", "hit_rate", grid_simulate_hit_rate, 100, 2},
    {"TTFT mean", "ttft_mean_s", grid_simulate_ttft_mean, 1, 3},
    {"p50", "ttft_p50_s", grid_simulate_ttft_p50, 1, 3},
    {"p90", "ttft_p90_s", grid_simulate_ttft_p90, 1, 3},
    {"p99", "ttft_p99_s", grid_simulate_ttft_p99, 1, 3},
    {"end mean", "end_to_end_mean_s", e2e_mean, 1, 2},
    {"p50", "end_to_end_p50_s", e2e_p50, 1, 2},
    {"p99", "end_to_end_p99_s", e2e_p99, 1, 2},
    {"spread", "queue_spread_mean", spread, 1, 2},
    {"p99", "queue_spread_p99", spread_p99, 1, 1},
    {"imbal.", "imbalance", imbalance, 1, 2},
    {"work", "busiest_site_prefill_share", share_most, 1, 2},
    {"429 %", "refused_share", refused, 100, 2},
};
#define N_COLUMNS (sizeof columns / sizeof columns[0])
#define COLUMN_WIDTH 9
#define NAME_WIDTH 30

/* ---- table ------------------------------------------------------------------------------------------------------- */

static void print_head(const struct grid_simulate_report *report, FILE *to)
{
    const struct grid_simulate_command *command = report->command;
    const struct grid_trace_sums *sums = report->sums;
    double n = (double)report->trace->n;
    fprintf(to,
            "%zu requests over %.0f s, %.0f tokens in and %.0f out on average; one endless cache would hit %.2f %%.\n",
            report->trace->n, sums->seconds, (double)sums->input_tokens / n, (double)sums->output_tokens / n,
            100 * (double)sums->ideal_hit_tokens / (double)sums->input_tokens);
    fprintf(to, "%zu sites, %zu replica%s; as it is the trace takes %.1f %% of the sites' time, were nothing reused.\n",
            command->grid.n_sites, command->grid.replicas, command->grid.replicas == 1 ? "" : "s",
            100 * report->natural_load);
    fprintf(to,
            "Times in seconds. spread: waiting at the site with the most less the least. imbal.: requests under way\n"
            "at the busiest site over the mean. work: prefill time of the busiest site over the mean.%s\n",
            command->repeat > 1 ? "\nMeans over seeds; below them the least and the most." : "");
}

static void print_number(double value, size_t column, FILE *to)
{
    if (isfinite(value))
        fprintf(to, " %*.*f", COLUMN_WIDTH, columns[column].decimals, columns[column].scale * value);
    else
        fprintf(to, " %*s", COLUMN_WIDTH, "-");
}

static void print_row(const struct grid_simulate_result *results, size_t n, FILE *to)
{
    bool wide = strlen(results->spec) > NAME_WIDTH; /* then it has a line to itself */
    fprintf(to, "%-*s%s", NAME_WIDTH, results->spec, wide ? "\n" : "");
    if (wide)
        fprintf(to, "%-*s", NAME_WIDTH, "");
    for (size_t i = 0; i < N_COLUMNS; i++)
        print_number(grid_simulate_figure(results, n, columns[i].of).mean, i, to);
    fputc('\n', to);
    for (int most = 0; n > 1 && most < 2; most++) {
        fprintf(to, "%-*s", NAME_WIDTH, most ? "  most" : "  least");
        for (size_t i = 0; i < N_COLUMNS; i++) {
            struct grid_simulate_figure figure = grid_simulate_figure(results, n, columns[i].of);
            print_number(most ? figure.most : figure.least, i, to);
        }
        fputc('\n', to);
    }
}

void grid_simulate_print_table(const struct grid_simulate_report *report, FILE *to)
{
    const struct grid_simulate_command *command = report->command;
    const struct grid_simulate_result *at = report->results;
    print_head(report, to);
    for (size_t l = 0; l < command->n_loads; l++) {
        if (command->loads[l] > 0)
            fprintf(to, "\nload %.0f %% of what the sites can do %s\n", 100 * command->loads[l],
                    command->load_of_ideal ? "with all reused that could be" : "with nothing reused");
        else
            fputs("\nload as it is\n", to);
        fprintf(to, "%-*s", NAME_WIDTH, "policy");
        for (size_t i = 0; i < N_COLUMNS; i++)
            fprintf(to, " %*s", COLUMN_WIDTH, columns[i].head);
        fputc('\n', to);
        for (size_t p = 0; p < command->n_policies; p++, at += command->repeat)
            print_row(at, command->repeat, to);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void put(struct grid_buf *out, const char *name, double value)
{
    grid_buf_printf(out, "\"%s\":", name);
    grid_buf_number(out, value);
}

static void put_sites(struct grid_buf *out, const struct grid_simulate_options *grid)
{
    for (size_t i = 0; i < grid->n_sites; i++) {
        const struct grid_simulate_site *site = &grid->sites[i];
        grid_buf_puts(out, i ? ",{" : "{");
        put(out, "prefill_tokens_per_second", site->prefill_tokens_per_second);
        grid_buf_puts(out, ",");
        put(out, "decode_tokens_per_second", site->decode_tokens_per_second);
        grid_buf_puts(out, ",");
        put(out, "slots", site->slots);
        grid_buf_puts(out, ",");
        put(out, "kv_blocks", site->kv_blocks);
        grid_buf_puts(out, ",");
        put(out, "delay_ms", site->delay_ms);
        grid_buf_puts(out, ",");
        put(out, "max_waiting", site->max_waiting);
        grid_buf_puts(out, "}");
    }
}

static void put_run(struct grid_buf *out, const struct grid_simulate_options *grid,
                    const struct grid_simulate_result *r)
{
    grid_buf_puts(out, "{\"policy\":");
    grid_buf_json(out, grid_query_str(r->spec));
    grid_buf_printf(out, ",\"load\":%s", r->load > 0 ? "" : "null");
    if (r->load > 0)
        grid_buf_number(out, r->load);
    grid_buf_printf(out, ",\"seed\":%llu,\"requests\":%zu,\"answered\":%zu,", (unsigned long long)r->seed, r->n,
                    r->answered);
    for (size_t i = 0; i < N_COLUMNS; i++) {
        put(out, columns[i].json, columns[i].of(r));
        grid_buf_puts(out, ",");
    }
    put(out, "simulated_seconds", r->seconds);
    grid_buf_puts(out, ",\"site_requests\":[");
    for (size_t i = 0; i < grid->n_sites; i++)
        grid_buf_printf(out, "%s%llu", i ? "," : "", (unsigned long long)r->site_requests[i]);
    grid_buf_puts(out, "],\"outcomes\":{");
    for (int i = 0; i < GRID_N_OUTCOMES; i++)
        grid_buf_printf(out, "%s\"%s\":%llu", i ? "," : "", grid_outcome_name((enum grid_outcome)i),
                        (unsigned long long)r->outcomes[i]);
    grid_buf_puts(out, "},\"ttft_percentiles_s\":[");
    for (int i = 1; i < 100; i++) {
        grid_buf_puts(out, i > 1 ? "," : "");
        grid_buf_number(out, grid_simulate_quantile(r->ttft_s, r->answered, i / 100.0));
    }
    grid_buf_puts(out, "]}");
}

static void put_report(struct grid_buf *out, const struct grid_simulate_report *report)
{
    const struct grid_simulate_command *command = report->command;
    size_t n = command->n_loads * command->n_policies * command->repeat;
    grid_buf_printf(out, "{\"trace\":{\"requests\":%zu,", report->trace->n);
    put(out, "seconds", report->sums->seconds);
    grid_buf_printf(out, ",\"input_tokens\":%llu,\"output_tokens\":%llu,\"ideal_hit_tokens\":%llu},",
                    (unsigned long long)report->sums->input_tokens, (unsigned long long)report->sums->output_tokens,
                    (unsigned long long)report->sums->ideal_hit_tokens);
    put(out, "natural_load", report->natural_load);
    grid_buf_printf(out, ",\"load_of\":\"%s\",\"replicas\":%zu,\"front\":\"%s\",\"head_blocks\":%zu,",
                    command->load_of_ideal ? "ideal" : "cold", command->grid.replicas,
                    command->grid.front_hash ? "hash" : "any", command->grid.head_blocks);
    put(out, "poll_ms", command->grid.poll_ms);
    grid_buf_puts(out, ",");
    put(out, "signal_delay_ms", command->grid.signal_delay_ms);
    grid_buf_printf(out, ",\"waiting\":\"%s\",\"headers\":\"%s\",\"sites\":[",
                    command->grid.slots_only ? "slots" : "prefill",
                    command->grid.early_headers ? "early" : "first-token");
    put_sites(out, &command->grid);
    grid_buf_puts(out, "],\"runs\":[");
    for (size_t i = 0; i < n; i++) {
        grid_buf_puts(out, i ? ",\n" : "\n");
        put_run(out, &command->grid, &report->results[i]);
    }
    grid_buf_puts(out, "\n]}\n");
}

bool grid_simulate_print_json(const struct grid_simulate_report *report, const char *path, char *error,
                              size_t error_size)
{
    struct grid_buf out = {.limit = MAX_JSON_BYTES};
    bool standard = strcmp(path, "-") == 0;
    put_report(&out, report);
    FILE *file = out.failed ? NULL : standard ? stdout : fopen(path, "w");
    bool good = file && fwrite(out.ptr, 1, out.len, file) == out.len;
    if (file && !standard)
        good = fclose(file) == 0 && good;
    if (!good)
        (void)snprintf(error, error_size, "%s: %s", path, out.failed ? "out of memory" : strerror(errno));
    grid_buf_done(&out);
    return good;
}
