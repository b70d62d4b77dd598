/*
 * main_replay.c - runs a fuzz target over its corpus once, in builds without libFuzzer
 *
 * Story     fuzz_x CORPUS... : each argument is a file or a folder of files; a crash or a failed assertion is a
 *           failure. No file at all is a failure too, so that a lost corpus is seen.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t n_run;

static int replay_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1); /* of exactly this size, so that a read behind it is seen */
    if (!file || !data || fread(data, 1, size, file) != size) {
        fprintf(stderr, "cannot read %s\n", path);
        if (file)
            fclose(file);
        free(data);
        return 1;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    n_run++;
    return 0;
}

static int replay_folder(const char *path)
{
    DIR *folder = opendir(path);
    int bad = folder ? 0 : 1;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char name[PATH_BYTES];
        struct stat info;
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(name, sizeof name, "%s/%s", path, entry->d_name) >= PATH_BYTES || stat(name, &info) != 0)
            bad = 1;
        else if (S_ISREG(info.st_mode))
            bad |= replay_file(name, (size_t)info.st_size);
    }
    if (folder)
        closedir(folder);
    return bad;
}

int main(int argc, char **argv)
{
    int bad = 0;
    for (int i = 1; i < argc; i++) {
        struct stat info;
        if (stat(argv[i], &info) != 0) {
            fprintf(stderr, "cannot find %s\n", argv[i]);
            bad = 1;
        } else {
            bad |= S_ISDIR(info.st_mode) ? replay_folder(argv[i]) : replay_file(argv[i], (size_t)info.st_size);
        }
    }
    printf("%zu inputs\n", n_run);
    return bad || n_run == 0;
}
