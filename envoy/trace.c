/*
 * trace.c - the recorder behind trace.h
 *
 * Story     Two buffers of one size: workers append to one under a short lock, the thread takes it when there is
 *           something in it and leaves the other. The file is locked against a second writer, and opened anew when it
 *           was moved away, as logrotate does. A line that did not go in whole is cut off again; trouble is said once,
 *           and tried again with the next lines.
 */
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITE_BYTES = 256 << 10, LINE_BYTES = 16 << 10, OWNER_ONLY = 0600 };

struct buffer {
    char *bytes;
    size_t len;
};

static struct {
    _Atomic bool on;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    /* guarded by lock */
    struct buffer filling;
    bool stop;
    /* the thread's own */
    struct buffer writing;
    struct grid_buf lines;
    uint64_t n_lines; /* in it */
    int fd;
    bool failing; /* said so, and nothing was written since */
    /* constant */
    struct grid_router *router;
    char *path;
    uint64_t max_bytes;
    char *secret;
    size_t secret_len;
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER, .fd = -1};

/* ---- the file ------------------------------------------------------------------------------------------------ */

enum { NOT_A_RECORDING = -1, FULL = -2, LOCKED = -3 }; /* beside errnos */

static const char *words(int failed)
{
    return failed == NOT_A_RECORDING ? "it is there, and is no recording"
           : failed == FULL          ? "max_bytes is reached"
           : failed == LOCKED        ? "another gateway records to it"
                                     : strerror(failed);
}

/* Cuts off what a killed gateway left of a line. A file that does not begin as a recording is left alone. */
static int mend(int fd, off_t size)
{
    char bytes[LINE_BYTES];
    if (size == 0)
        return 0;
    if (pread(fd, bytes, sizeof(GRID_RECORD_HEAD) - 1, 0) != (ssize_t)sizeof(GRID_RECORD_HEAD) - 1 ||
        memcmp(bytes, GRID_RECORD_HEAD, sizeof(GRID_RECORD_HEAD) - 1) != 0)
        return NOT_A_RECORDING;
    off_t from = size > LINE_BYTES ? size - LINE_BYTES : 0;
    ssize_t n = pread(fd, bytes, (size_t)(size - from), from);
    const char *end = n > 0 ? memrchr(bytes, '\n', (size_t)n) : NULL;
    off_t whole = end ? from + (end + 1 - bytes) : from;
    return n < 0 || (whole < size && ftruncate(fd, whole) != 0) ? errno : 0;
}

/* 0, an errno, or one of the above. */
static int take_file(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return errno;
    if (!S_ISREG(st.st_mode))
        return NOT_A_RECORDING;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? LOCKED : errno;
    return mend(fd, st.st_size);
}

static int open_file(void)
{
    int fd = open(trace.path, O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, OWNER_ONLY);
    if (fd < 0)
        return errno;
    int failed = take_file(fd);
    if (failed)
        (void)close(fd);
    else
        trace.fd = fd;
    return failed;
}

static void close_file(void)
{
    if (trace.fd >= 0)
        (void)close(trace.fd);
    trace.fd = -1;
}

/* Follows the path: what was moved away is left. *out_size: the file's. */
static int follow(uint64_t *out_size)
{
    struct stat here, there;
    if (trace.fd >= 0 && (fstat(trace.fd, &here) != 0 || stat(trace.path, &there) != 0 || here.st_dev != there.st_dev ||
                          here.st_ino != there.st_ino))
        close_file();
    int failed = trace.fd < 0 ? open_file() : 0;
    if (!failed && fstat(trace.fd, &here) != 0)
        failed = errno;
    *out_size = failed ? 0 : (uint64_t)here.st_size;
    return failed;
}

/* All of it or nothing of it, behind `size` bytes. What cannot be cut off now is when the file is opened anew. */
static int append(uint64_t size, const char *bytes, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = write(trace.fd, bytes + done, len - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            break;
    }
    if (done == len)
        return 0;
    int failed = errno;
    if (done > 0 && ftruncate(trace.fd, (off_t)size) != 0)
        close_file();
    return failed ? failed : EIO;
}

/* Said once, and once more when it goes on. */
static void tell(int failed)
{
    if (failed && !trace.failing)
        grid_module_log(ENVOY_LOG_WARN, "trace_keys: %s: %s; nothing is recorded until that ends", trace.path,
                        words(failed));
    else if (!failed && trace.failing)
        grid_module_log(ENVOY_LOG_WARN, "trace_keys: %s: recording goes on", trace.path);
    trace.failing = failed != 0;
}

static void flush(void)
{
    uint64_t size;
    if (trace.n_lines == 0)
        return;
    int failed = follow(&size);
    if (!failed && size + trace.lines.len > trace.max_bytes)
        failed = FULL;
    if (!failed)
        failed = append(size, trace.lines.ptr, trace.lines.len);
    tell(failed);
    grid_count_records(trace.router, failed ? 0 : trace.n_lines, failed ? trace.n_lines : 0);
    trace.lines.len = 0;
    trace.n_lines = 0;
}

/* ---- the thread ---------------------------------------------------------------------------------------------- */

static void put_line(const struct grid_trace_note *note, const char *bytes)
{
    uint64_t values[GRID_MAX_KEYS];
    memcpy(values, bytes, note->n * sizeof(values[0]));
    grid_record_keys((struct grid_str){trace.secret, trace.secret_len}, values, note->n);
    struct grid_record record = {.at_ms = note->at_ms,
                                 .body_bytes = note->body_bytes,
                                 .prompt_tokens = note->prompt_tokens,
                                 .has_output = note->has_output,
                                 .output_tokens = note->output_tokens,
                                 .values = values,
                                 .n = note->n};
    size_t before = trace.lines.len;
    grid_record_put(&record, &trace.lines);
    if (trace.lines.failed) { /* no memory */
        grid_buf_done(&trace.lines);
        trace.lines = (struct grid_buf){.limit = WRITE_BYTES + LINE_BYTES};
        grid_count_records(trace.router, 0, trace.n_lines + 1);
        trace.n_lines = 0;
        return;
    }
    trace.n_lines += trace.lines.len > before;
    if (trace.lines.len >= WRITE_BYTES)
        flush();
}

static void put_all(const struct buffer *buffer)
{
    for (size_t at = 0; at < buffer->len;) {
        struct grid_trace_note note;
        memcpy(&note, buffer->bytes + at, sizeof(note));
        at += sizeof(note);
        put_line(&note, buffer->bytes + at);
        at += note.n * sizeof(uint64_t);
    }
    flush();
}

static void *run(void *context)
{
    (void)context;
    bool stop = false;
    while (!stop) {
        (void)pthread_mutex_lock(&trace.lock);
        while (trace.filling.len == 0 && !trace.stop)
            (void)pthread_cond_wait(&trace.more, &trace.lock);
        struct buffer full = trace.filling;
        trace.filling = trace.writing;
        stop = trace.stop;
        (void)pthread_mutex_unlock(&trace.lock);
        trace.writing = full;
        put_all(&trace.writing);
        trace.writing.len = 0;
    }
    return NULL;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

static void forget(void)
{
    close_file();
    if (trace.secret)
        grid_wipe(trace.secret, trace.secret_len);
    for (int i = 0; i < 2; i++) {
        struct buffer *buffer = i == 0 ? &trace.filling : &trace.writing;
        if (buffer->bytes)
            grid_wipe(buffer->bytes, GRID_TRACE_QUEUE_BYTES);
        free(buffer->bytes);
    }
    free(trace.secret);
    free(trace.path);
    grid_buf_done(&trace.lines);
    trace.secret = trace.path = NULL;
    trace.filling = trace.writing = (struct buffer){NULL, 0};
    trace.lines = (struct grid_buf){.limit = 0};
    trace.n_lines = 0;
    trace.stop = trace.failing = false;
}

/* The thread takes no signal: Envoy's main thread has handlers for those that end it. */
static int start_thread(void)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&trace.thread, NULL, run, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

bool grid_trace_start(struct grid_router *router, const char *path, uint64_t max_bytes, struct grid_str secret,
                      char *error, size_t size)
{
    trace.router = router;
    trace.max_bytes = max_bytes;
    trace.path = strdup(path);
    trace.secret = malloc(secret.len);
    trace.secret_len = secret.len;
    trace.filling.bytes = malloc(GRID_TRACE_QUEUE_BYTES);
    trace.writing.bytes = malloc(GRID_TRACE_QUEUE_BYTES);
    trace.lines = (struct grid_buf){.limit = WRITE_BYTES + LINE_BYTES};
    bool good = trace.path && trace.secret && trace.filling.bytes && trace.writing.bytes;
    if (good)
        memcpy(trace.secret, secret.ptr, secret.len);
    if (good)
        tell(open_file());
    int failed = good ? start_thread() : ENOMEM;
    if (failed) {
        (void)snprintf(error, size, "trace_keys: %s", strerror(failed));
        forget();
        return false;
    }
    atomic_store(&trace.on, true);
    return true;
}

void grid_trace_stop(void)
{
    if (!atomic_exchange(&trace.on, false))
        return;
    (void)pthread_mutex_lock(&trace.lock);
    trace.stop = true;
    (void)pthread_cond_signal(&trace.more);
    (void)pthread_mutex_unlock(&trace.lock);
    (void)pthread_join(trace.thread, NULL);
    forget();
}

bool grid_trace_on(void)
{
    return atomic_load_explicit(&trace.on, memory_order_relaxed);
}

void grid_trace_add(const struct grid_trace_note *note, const uint64_t *keys)
{
    size_t key_bytes = note->n * sizeof(*keys);
    (void)pthread_mutex_lock(&trace.lock);
    bool room = trace.filling.len + sizeof(*note) + key_bytes <= GRID_TRACE_QUEUE_BYTES;
    if (room) {
        char *at = trace.filling.bytes + trace.filling.len;
        memcpy(at, note, sizeof(*note));
        if (key_bytes > 0)
            memcpy(at + sizeof(*note), keys, key_bytes);
        trace.filling.len += sizeof(*note) + key_bytes;
        (void)pthread_cond_signal(&trace.more);
    }
    (void)pthread_mutex_unlock(&trace.lock);
    if (!room)
        grid_count_records(trace.router, 0, 1);
}
