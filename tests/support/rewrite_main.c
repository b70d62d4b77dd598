/*
 * rewrite_main.c - the tagger as a program, for tests that compare it with its twin
 *
 * Story     rewrite_lines TAG reads lines "SSE PIECE HEX": 1 for an event stream by its type else 0, the bytes of a
 *           piece (0: the whole), the answer in hex digits. For each it prints what comes out in hex digits, and
 *           flushes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rewrite.h"

static void print_hex(void *ctx, struct grid_str bytes)
{
    (void)ctx;
    for (size_t i = 0; i < bytes.len; i++)
        printf("%02x", (unsigned char)bytes.ptr[i]);
}

static size_t from_hex(char *text, size_t len)
{
    for (size_t i = 0; i < len / 2; i++) {
        char two[3] = {text[2 * i], text[2 * i + 1], 0};
        text[i] = (char)strtoul(two, NULL, 16);
    }
    return len / 2;
}

static void rewrite_line(const char *tag, char *line, size_t len)
{
    char *end;
    bool sse = strtoul(line, &end, 10) != 0;
    size_t piece = strtoul(end, &end, 10), start = (size_t)(end + 1 - line);
    char *body = end + 1;
    size_t left = from_hex(body, len > start ? len - start : 0);
    struct grid_rewrite rewrite;
    grid_rewrite_begin(&rewrite, sse, tag, strlen(tag));
    do {
        struct grid_str next = {body, piece && piece < left ? piece : left};
        body += next.len;
        left -= next.len;
        if (grid_rewrite_feed(&rewrite, &next, 1, left == 0, print_hex, NULL))
            print_hex(NULL, next);
    } while (left > 0);
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    if (argc != 2 || argv[1][0] == '\0' || strlen(argv[1]) > GRID_TAG_BYTES) {
        fprintf(stderr, "usage: rewrite_lines TAG\n");
        return 2;
    }
    while ((len = getline(&line, &room, stdin)) > 0)
        rewrite_line(argv[1], line, (size_t)len - (line[len - 1] == '\n'));
    free(line);
    return 0;
}
