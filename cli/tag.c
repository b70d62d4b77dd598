/*
 * tag.c - the verb `tag`: ids of stored responses and conversations, signed and opened by hand
 *
 * Story     Three things that a person on duty needs: make a key file, see where an id that a client reports leads, and
 *           make an id for a test. Keys are read from files and handed to the core, which does the rest.
 * Promise   No key is printed, taken from the command line or left in memory. A file that is there is never
 *           overwritten.
 * Not here  A running gateway: it follows its key files by itself.
 */
#include "cli/cli.h"
#include "cli/files.h"
#include "cli/query.h"
#include "cli/tagkey.h"
#include "cli/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SITE_BYTES 63u

static const char usage[] =
    "usage: grid-gateway tag sign --key FILE... --kind resp|conv --site S --cluster C ID\n"
    "       grid-gateway tag open --key FILE... [--serving FILE] TAGGED\n"
    "       grid-gateway tag new-key FILE\n"
    "\n"
    "Ids of stored responses and conversations leave the gateway as PREFIX SITE.MARK.MAC.ID, so that they\n"
    "lead back to the cluster that stored them.\n"
    "\n"
    "  sign     prints ID, given without prefix, as it leaves the gateway from that site and cluster\n"
    "  open     says what a tagged id names, and whether a gateway with these keys and this serving config\n"
    "           accepts it; without --serving any cluster will do\n"
    "  new-key  writes 32 random bytes into a new file, mode 0600; a file that is there stays as it is\n"
    "\n"
    "  --key FILE      a key; may be repeated: the first signs, all verify. None: ids without a mac\n"
    "  --kind KIND     resp or conv\n"
    "  --site S        the site's name\n"
    "  --cluster C     the cluster's name\n"
    "  --serving FILE  the serving config, YAML or JSON\n"
    "  -h, --help\n"
    "\n"
    "Examples\n"
    "  grid-gateway tag new-key tag.key\n"
    "  grid-gateway tag open --key tag.key --serving serving.yaml \"$ID\"\n"
    "  grid-gateway tag sign --key tag.key --kind resp --site east --cluster pool-east abc123\n"
    "\n"
    "Exit status: 0 done, accepted; 1 not accepted, or it did not work; 2 usage.\n";

struct options {
    struct grid_tagkey_set keys;
    const char *kind, *site, *cluster, *serving, *text;
};

static int failed(const char *error)
{
    fprintf(stderr, "grid-gateway tag: %s\n", error);
    return GRID_EXIT_FAILED;
}

static int misused(const char *error)
{
    fprintf(stderr, "grid-gateway tag: %s\nTry 'grid-gateway tag --help'.\n", error);
    return GRID_EXIT_USAGE;
}

/* A router with the keys and, unless it is NULL, the serving config. */
static bool make_router(const struct options *options, const struct grid_yaml *serving, struct grid_router **out,
                        char *error, size_t error_size)
{
    struct grid_errors errors = {0};
    struct grid_load load = {
        .has_tag_keys = true, .tag_keys = options->keys.keys, .n_tag_keys = options->keys.n, .words = true};
    if (serving != NULL) {
        load.serving = (struct grid_str){serving->json, serving->len};
        load.words = serving->words;
    }
    enum grid_status status = grid_query_router(0, out);
    if (status == GRID_OK) {
        status = grid_router_load(*out, &load, 0, &errors, NULL);
        if (status != GRID_OK) {
            grid_router_free(*out);
        }
    }
    if (status != GRID_OK && errors.count > 0) {
        snprintf(error, error_size, "%s:%u: %s: %s", options->serving != NULL ? options->serving : "",
                 serving != NULL ? grid_yaml_line(serving, errors.items[0].offset) : 0, errors.items[0].field,
                 errors.items[0].message);
    } else if (status != GRID_OK) {
        snprintf(error, error_size, "out of memory");
    }
    return status == GRID_OK;
}

/* ---- sign ---------------------------------------------------------------------------------------------------- */

static int sign(const struct options *options)
{
    char error[512];
    struct grid_router *router;
    if (options->kind == NULL || options->site == NULL || options->cluster == NULL) {
        return misused("sign needs --kind, --site and --cluster");
    }
    bool conversation = strcmp(options->kind, "conv") == 0;
    if (!conversation && strcmp(options->kind, "resp") != 0) {
        return misused("--kind is resp or conv");
    }
    if (options->site[0] == '\0' || strlen(options->site) > MAX_SITE_BYTES || strchr(options->site, '.') != NULL ||
        options->cluster[0] == '\0' || options->text[0] == '\0') {
        return misused("a site has 1 to 63 bytes and no dot, a cluster and an id have at least one byte");
    }
    if (!make_router(options, NULL, &router, error, sizeof error)) {
        return failed(error);
    }
    struct grid_buf out = {.limit = strlen(options->text) + 256};
    grid_router_tag(router, conversation ? GRID_ID_CONVERSATION : GRID_ID_RESPONSE, grid_query_str(options->site),
                    grid_query_str(options->cluster), grid_query_str(options->text), &out);
    grid_router_free(router);
    bool good = !out.failed && printf("%.*s\n", (int)out.len, out.ptr) > 0 && fflush(stdout) == 0;
    grid_buf_done(&out);
    return good ? GRID_EXIT_OK : failed("cannot print the id");
}

/* ---- open ---------------------------------------------------------------------------------------------------- */

/* An id comes from a client: what could talk to the terminal is shown as a question mark. */
static void print_text(const char *name, const char *head, struct grid_str text)
{
    printf("%-9s %s", name, head);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        putchar(c < ' ' || c >= 0x7f ? '?' : c);
    }
    putchar('\n');
}

static void print_opened(const struct grid_opened *opened, bool accepted, const char *reason)
{
    if (opened->site.ptr != NULL) {
        printf("kind      %s\n", opened->kind == GRID_ID_CONVERSATION ? "conversation" : "response");
        print_text("site", "", opened->site);
        print_text("mark", "", opened->mark);
        printf("cluster   %s\n", opened->cluster[0] != '\0' ? opened->cluster : "not known");
        print_text("id", opened->kind == GRID_ID_CONVERSATION ? "conv_" : "resp_", opened->rest);
    }
    printf("accepted  %s%s\n", accepted ? "yes" : "no: ", accepted ? "" : reason);
}

static int open_tagged(const struct options *options)
{
    char error[GRID_PATH_BYTES + 512], *text = NULL;
    struct grid_router *router;
    struct grid_yaml yaml = {0};
    size_t len;
    bool good = true;
    if (options->serving != NULL) {
        good = grid_files_read_input(options->serving, GRID_YAML_MAX_BYTES, &text, &len, error, sizeof error) &&
               grid_yaml_to_json((struct grid_str){text, len}, options->serving, &yaml, error, sizeof error);
        free(text);
    }
    good = good && make_router(options, options->serving != NULL ? &yaml : NULL, &router, error, sizeof error);
    grid_yaml_done(&yaml);
    if (!good) {
        return failed(error);
    }
    struct grid_opened opened;
    grid_router_untag(router, grid_query_str(options->text), &opened);
    bool accepted = opened.accept || (options->serving == NULL && strcmp(opened.reason, "unknown_cluster") == 0);
    print_opened(&opened, accepted, opened.reason);
    grid_router_free(router);
    return accepted && fflush(stdout) == 0 ? GRID_EXIT_OK : GRID_EXIT_FAILED;
}

/* ---- new-key ------------------------------------------------------------------------------------------------- */

static int new_key(const char *path)
{
    unsigned char key[GRID_MIN_TAG_KEY_BYTES];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        fprintf(stderr, "grid-gateway tag: cannot make %s: %s\n", path, strerror(errno));
        return GRID_EXIT_FAILED;
    }
    errno = 0;
    bool good = getrandom(key, sizeof key, 0) == (ssize_t)sizeof key && fchmod(fd, 0600) == 0 &&
                write(fd, key, sizeof key) == (ssize_t)sizeof key && fsync(fd) == 0;
    grid_wipe(key, sizeof key);
    int why = errno;
    good = close(fd) == 0 && good;
    if (!good) {
        unlink(path);
        fprintf(stderr, "grid-gateway tag: cannot write %s: %s\n", path, strerror(why));
    }
    return good ? GRID_EXIT_OK : GRID_EXIT_FAILED;
}

/* ---- command line -------------------------------------------------------------------------------------------- */

/* GRID_EXIT_OK, or what the command ends with. */
static int read_options(int argc, char **argv, struct options *out)
{
    static const struct option options[] = {
        {"key", required_argument, NULL, 'k'},     {"kind", required_argument, NULL, 't'},
        {"site", required_argument, NULL, 's'},    {"cluster", required_argument, NULL, 'c'},
        {"serving", required_argument, NULL, 'f'}, {NULL, 0, NULL, 0}};
    char error[GRID_PATH_BYTES + 256];
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'k':
            if (!grid_tagkey_add(&out->keys, optarg, error, sizeof error)) {
                return failed(error);
            }
            break;
        case 't':
            out->kind = optarg;
            break;
        case 's':
            out->site = optarg;
            break;
        case 'c':
            out->cluster = optarg;
            break;
        case 'f':
            out->serving = optarg;
            break;
        default:
            return misused("unknown option");
        }
    }
    if (argc - optind != 1) {
        return misused("needs one ID");
    }
    out->text = argv[optind];
    return GRID_EXIT_OK;
}

int grid_cmd_tag(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return GRID_EXIT_OK;
        }
    }
    if (argc < 2) {
        return misused("needs sign, open or new-key");
    }
    const char *verb = argv[1];
    if (strcmp(verb, "new-key") == 0) {
        return argc == 3 && argv[2][0] != '-' ? new_key(argv[2]) : misused("new-key takes one FILE");
    }
    bool is_sign = strcmp(verb, "sign") == 0;
    if (!is_sign && strcmp(verb, "open") != 0) {
        return misused("needs sign, open or new-key");
    }
    struct options options = {.kind = NULL};
    int status = read_options(argc - 1, argv + 1, &options);
    if (status == GRID_EXIT_OK) {
        status = is_sign ? sign(&options) : open_tagged(&options);
    }
    grid_tagkey_wipe(&options.keys);
    return status;
}
