/*
 * simulate_plot.c - what came out, as SVG
 *
 * Story     One kind of chart: lines over two labelled axes, with a legend. Three of them: hit rate against load, the
 *           distribution of times to the first token, and the deepest line over time.
 * Promise   Plain SVG 1.1 with no script and no outside file; the same results give the same bytes.
 */
#include "simulate.h"

#include "files.h"
#include "query.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define WIDTH 960.0
#define HEIGHT 540.0
#define LEFT 80.0
#define RIGHT 250.0 /* the legend */
#define TOP 50.0
#define BOTTOM 60.0
#define MAX_SVG_BYTES ((size_t)1 << 26)
#define LEGEND_ROW 42.0     /* at most: with many lines the rows come closer and settings are left out */
#define LEGEND_SETTING 12.0 /* each under its policy's name */
#define TIME_POINTS 150
#define QUANTILE_POINTS 200

/* Colours that most eyes can tell apart (Okabe and Ito), then the same in dashes. */
static const char *const colours[] = {"#d55e00", "#0072b2", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#7f7f7f", "#000000"};
#define N_COLOURS (sizeof colours / sizeof colours[0])

struct chart {
    const char *title, *x_label, *y_label;
    bool x_log;
    double x_least, x_most, y_least, y_most, legend_row;
    struct grid_buf out;
};

static double x_of(const struct chart *chart, double x)
{
    double share = chart->x_log ? log(x / chart->x_least) / log(chart->x_most / chart->x_least)
                                : (x - chart->x_least) / (chart->x_most - chart->x_least);
    return LEFT + fmin(fmax(share, 0), 1) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct chart *chart, double y)
{
    double share = (y - chart->y_least) / (chart->y_most - chart->y_least);
    return HEIGHT - BOTTOM - fmin(fmax(share, 0), 1) * (HEIGHT - TOP - BOTTOM);
}

static void text(struct chart *chart, double x, double y, const char *anchor, const char *extra, const char *words)
{
    grid_buf_printf(&chart->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, extra);
    for (const char *at = words; *at; at++)
        if (*at == '<')
            grid_buf_puts(&chart->out, "&lt;");
        else if (*at == '&')
            grid_buf_puts(&chart->out, "&amp;");
        else
            grid_buf_put(&chart->out, at, 1);
    grid_buf_puts(&chart->out, "</text>\n");
}

static void line(struct chart *chart, double x1, double y1, double x2, double y2, const char *style)
{
    grid_buf_printf(&chart->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style);
}

/* A step of 1, 2 or 5 times a power of ten that gives five to ten marks. */
static double step_of(double span)
{
    double power = pow(10, floor(log10(span / 5)));
    double times = span / 5 / power;
    return power * (times >= 5 ? 5 : times >= 2 ? 2 : 1);
}

static void mark(struct chart *chart, double at, bool x)
{
    char words[32];
    (void)snprintf(words, sizeof words, "%.6g", fabs(at) < 1e-12 ? 0 : at);
    if (x) {
        line(chart, x_of(chart, at), TOP, x_of(chart, at), HEIGHT - BOTTOM, "stroke=\"#e0e0e0\"");
        text(chart, x_of(chart, at), HEIGHT - BOTTOM + 18, "middle", "", words);
    } else {
        line(chart, LEFT, y_of(chart, at), WIDTH - RIGHT, y_of(chart, at), "stroke=\"#e0e0e0\"");
        text(chart, LEFT - 8, y_of(chart, at) + 4, "end", "", words);
    }
}

/* At the multiples of a round step. */
static void marks(struct chart *chart, double least, double most, bool on_x)
{
    double step = step_of(most - least), first = ceil(least / step - 1e-9);
    int n = (int)(floor(most / step + 1e-9) - first) + 1;
    for (int i = 0; i < n; i++)
        mark(chart, (first + i) * step, on_x);
}

static void x_marks(struct chart *chart)
{
    if (!chart->x_log) {
        marks(chart, chart->x_least, chart->x_most, true);
        return;
    }
    static const double of_ten[] = {1, 2, 5};
    int last = (int)floor(log10(chart->x_most));
    for (int exponent = (int)floor(log10(chart->x_least)); exponent <= last; exponent++)
        for (size_t i = 0; i < 3; i++) {
            double at = pow(10, exponent) * of_ten[i];
            if (at >= chart->x_least && at <= chart->x_most)
                mark(chart, at, true);
        }
}

static void begin(struct chart *chart, size_t n_lines)
{
    chart->legend_row = fmin(LEGEND_ROW, (HEIGHT - TOP - BOTTOM) / (double)n_lines);
    chart->out = (struct grid_buf){.limit = MAX_SVG_BYTES};
    grid_buf_printf(
        &chart->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" "
        "fill=\"#ffffff\"/>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    text(chart, LEFT, TOP - 20, "start", " font-size=\"16\" font-weight=\"bold\"", chart->title);
    x_marks(chart);
    marks(chart, chart->y_least, chart->y_most, false);
    line(chart, LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "stroke=\"#000000\"");
    line(chart, LEFT, TOP, LEFT, HEIGHT - BOTTOM, "stroke=\"#000000\"");
    text(chart, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 15, "middle", "", chart->x_label);
    char turn[64];
    double middle = (TOP + HEIGHT - BOTTOM) / 2;
    (void)snprintf(turn, sizeof turn, " transform=\"rotate(-90 20 %.1f)\"", middle);
    text(chart, 20, middle, "middle", turn, chart->y_label);
}

static void begin_line(struct chart *chart, size_t number, const char *name)
{
    const char *colour = colours[number % N_COLOURS];
    const char *dash = number / N_COLOURS % 2 ? " stroke-dasharray=\"6 4\"" : "";
    char style[128];
    double y = TOP + 10 + (double)number * chart->legend_row, below = chart->legend_row - 18;
    (void)snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"2.5\"%s", colour, dash);
    line(chart, WIDTH - RIGHT + 15, y, WIDTH - RIGHT + 45, y, style);
    char bare[GRID_POLICY_SPEC_BYTES];
    size_t len = strcspn(name, ":");
    (void)snprintf(bare, sizeof bare, "%.*s", (int)len, name);
    text(chart, WIDTH - RIGHT + 52, y + 4, "start", "", bare);
    for (int row = 1; name[len] != '\0' && row * LEGEND_SETTING <= below; row++) {
        name += len + 1;
        len = strcspn(name, ",");
        (void)snprintf(bare, sizeof bare, "%.*s", (int)len, name);
        text(chart, WIDTH - RIGHT + 52, y + 4 + row * LEGEND_SETTING, "start", " font-size=\"10\" fill=\"#555555\"",
             bare);
    }
    grid_buf_printf(&chart->out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\"%s points=\"", colour,
                    dash);
}

static void point(struct chart *chart, double x, double y)
{
    if (isfinite(x) && isfinite(y))
        grid_buf_printf(&chart->out, "%.1f,%.1f ", x_of(chart, x), y_of(chart, y));
}

static void end_line(struct chart *chart)
{
    grid_buf_puts(&chart->out, "\"/>\n");
}

static bool finish(struct chart *chart, const char *dir, const char *name, char *error, size_t error_size)
{
    char path[GRID_PATH_BYTES];
    grid_buf_puts(&chart->out, "</svg>\n");
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = chart->out.failed ? NULL : fopen(path, "w");
    bool good = file && fwrite(chart->out.ptr, 1, chart->out.len, file) == chart->out.len;
    if (file)
        good = fclose(file) == 0 && good;
    if (!good)
        (void)snprintf(error, error_size, "%s: %s", path, chart->out.failed ? "out of memory" : strerror(errno));
    grid_buf_done(&chart->out);
    return good;
}

/* ---- the three --------------------------------------------------------------------------------------------------- */

/* Of the first seed. */
static const struct grid_simulate_result *first_of(const struct grid_simulate_report *report, size_t load,
                                                   size_t policy)
{
    const struct grid_simulate_command *command = report->command;
    return &report->results[(load * command->n_policies + policy) * command->repeat];
}

static bool plot_hits(const struct grid_simulate_report *report, const char *dir, char *error, size_t error_size)
{
    const struct grid_simulate_command *command = report->command;
    double most = 1;
    for (size_t l = 0; l < command->n_loads; l++)
        for (size_t p = 0; p < command->n_policies; p++)
            most = fmax(
                most, 100 * grid_simulate_figure(first_of(report, l, p), command->repeat, grid_simulate_hit_rate).mean);
    struct chart chart = {.title = "Prompt tokens that needed no prefill",
                          .x_label = "load, % of what the sites can do",
                          .y_label = "hit rate, % of prompt tokens",
                          .x_least = 100 * command->loads[0],
                          .x_most = 100 * command->loads[0],
                          .y_most = most * 1.05};
    for (size_t l = 0; l < command->n_loads; l++) {
        chart.x_least = fmin(chart.x_least, 100 * command->loads[l]);
        chart.x_most = fmax(chart.x_most, 100 * command->loads[l]);
    }
    if (chart.x_most <= chart.x_least)
        return true;
    begin(&chart, command->n_policies);
    for (size_t p = 0; p < command->n_policies; p++) {
        begin_line(&chart, p, command->policies[p]);
        for (size_t l = 0; l < command->n_loads; l++)
            point(&chart, 100 * command->loads[l],
                  100 * grid_simulate_figure(first_of(report, l, p), command->repeat, grid_simulate_hit_rate).mean);
        end_line(&chart);
    }
    return finish(&chart, dir, "hit-rate.svg", error, error_size);
}

static bool plot_ttft(const struct grid_simulate_report *report, const char *dir, char *error, size_t error_size)
{
    const struct grid_simulate_command *command = report->command;
    struct chart chart = {.title = "Time to the first token",
                          .x_label = "seconds, logarithmic",
                          .y_label = "% of requests answered by then",
                          .x_log = true,
                          .x_least = INFINITY,
                          .y_most = 100};
    for (size_t p = 0; p < command->n_policies; p++) {
        const struct grid_simulate_result *r = first_of(report, command->n_loads - 1, p);
        if (r->answered == 0)
            continue;
        chart.x_least = fmin(chart.x_least, fmax(0.001, grid_simulate_quantile(r->ttft_s, r->answered, 0.01)));
        chart.x_most = fmax(chart.x_most, grid_simulate_quantile(r->ttft_s, r->answered, 0.999));
    }
    if (!(chart.x_most > chart.x_least))
        return true;
    begin(&chart, command->n_policies);
    for (size_t p = 0; p < command->n_policies; p++) {
        const struct grid_simulate_result *r = first_of(report, command->n_loads - 1, p);
        begin_line(&chart, p, r->spec);
        for (int i = 1; i < QUANTILE_POINTS; i++) {
            double share = (double)i / QUANTILE_POINTS;
            point(&chart, fmax(chart.x_least, grid_simulate_quantile(r->ttft_s, r->answered, share)), share * 100);
        }
        end_line(&chart);
    }
    return finish(&chart, dir, "ttft.svg", error, error_size);
}

/* The deepest line in each of TIME_POINTS stretches of time. */
static double deepest(const struct grid_simulate_result *r, size_t stretch, double stretch_s)
{
    double most = NAN;
    for (size_t i = (size_t)((double)stretch * stretch_s); i < r->n_samples; i++) {
        if ((double)i >= (double)(stretch + 1) * stretch_s)
            break;
        most = fmax(most, (double)r->samples[i].most_waiting); /* of a number and NAN, the number */
    }
    return most;
}

static bool plot_depth(const struct grid_simulate_report *report, const char *dir, char *error, size_t error_size)
{
    const struct grid_simulate_command *command = report->command;
    struct chart chart = {.title = "Requests waiting at the site with the most",
                          .x_label = "seconds of simulated time",
                          .y_label = "requests waiting",
                          .x_most = 1,
                          .y_most = 1};
    for (size_t p = 0; p < command->n_policies; p++) {
        const struct grid_simulate_result *r = first_of(report, command->n_loads - 1, p);
        chart.x_most = fmax(chart.x_most, (double)r->n_samples);
        for (size_t i = 0; i < r->n_samples; i++)
            chart.y_most = fmax(chart.y_most, (double)r->samples[i].most_waiting * 1.05);
    }
    begin(&chart, command->n_policies);
    double stretch_s = fmax(1, chart.x_most / TIME_POINTS);
    for (size_t p = 0; p < command->n_policies; p++) {
        const struct grid_simulate_result *r = first_of(report, command->n_loads - 1, p);
        begin_line(&chart, p, r->spec);
        for (size_t i = 0; i < TIME_POINTS; i++)
            point(&chart, ((double)i + 0.5) * stretch_s, deepest(r, i, stretch_s));
        end_line(&chart);
    }
    return finish(&chart, dir, "depth.svg", error, error_size);
}

bool grid_simulate_plot(const struct grid_simulate_report *report, const char *dir, char *error, size_t error_size)
{
    return grid_files_mkdir(dir, error, error_size) &&
           (report->command->n_loads < 2 || plot_hits(report, dir, error, error_size)) &&
           plot_ttft(report, dir, error, error_size) && plot_depth(report, dir, error, error_size);
}
