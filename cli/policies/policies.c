/*
 * policies.c - the table of policies, and how their settings are read
 */
#include "policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct grid_policy_ops *const grid_policies[] = {
    &grid_policy_ours,        &grid_policy_least_queue, &grid_policy_random,
    &grid_policy_round_robin, &grid_policy_head_hash,   &grid_policy_llmd,
    &grid_policy_smg,         &grid_policy_oracle,      NULL};

bool grid_policy_next(const struct grid_policy *policy, size_t *at, struct grid_policy_setting *out)
{
    if (*at == 0) {
        const char *colon = strchr(policy->spec, ':');
        *at = colon ? (size_t)(colon - policy->spec) + 1 : strlen(policy->spec);
    }
    const char *text = policy->spec + *at;
    if (*text == '\0')
        return false;
    size_t len = strcspn(text, ","), name = strcspn(text, "=");
    if (name > len)
        name = len;
    out->name = (struct grid_str){text, name};
    out->value = (struct grid_str){text + name + (name < len), len - name - (name < len)};
    *at += len + (text[len] == ',');
    return true;
}

static bool number_of(struct grid_str text, double *out)
{
    char copy[64], *end;
    if (text.len == 0 || text.len >= sizeof copy)
        return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    *out = strtod(copy, &end);
    return *end == '\0' && isfinite(*out);
}

bool grid_policy_numbers(const struct grid_policy *policy, const struct grid_policy_number *numbers, size_t n,
                         char *error, size_t error_size)
{
    struct grid_policy_setting setting;
    for (size_t at = 0; grid_policy_next(policy, &at, &setting);) {
        size_t i = 0;
        while (i < n && (strlen(numbers[i].name) != setting.name.len ||
                         memcmp(numbers[i].name, setting.name.ptr, setting.name.len) != 0))
            i++;
        double value;
        if (i == n) {
            (void)snprintf(error, error_size, "policy %s: no setting '%.*s'", policy->ops->name, (int)setting.name.len,
                           setting.name.ptr);
            return false;
        }
        if (!number_of(setting.value, &value) || value < numbers[i].least || value > numbers[i].most) {
            (void)snprintf(error, error_size, "policy %s: %s must be a number from %g to %g", policy->ops->name,
                           numbers[i].name, numbers[i].least, numbers[i].most);
            return false;
        }
        *numbers[i].value = value;
    }
    return true;
}

double grid_policy_draw(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull; /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

bool grid_policy_open(struct grid_policy *policy, const char *spec, const struct grid_policy_setup *setup, char *error,
                      size_t error_size)
{
    size_t len = strcspn(spec, ":");
    *policy = (struct grid_policy){.setup = *setup};
    if (strlen(spec) >= sizeof policy->spec) {
        (void)snprintf(error, error_size, "a policy of more than %d characters", GRID_POLICY_SPEC_BYTES - 1);
        return false;
    }
    memcpy(policy->spec, spec, strlen(spec) + 1);
    for (size_t i = 0; grid_policies[i]; i++) {
        const struct grid_policy_ops *ops = grid_policies[i];
        if (strlen(ops->name) == len && memcmp(ops->name, spec, len) == 0) {
            policy->ops = ops;
            return ops->open(policy, error, error_size);
        }
    }
    (void)snprintf(error, error_size, "no policy '%.*s'", (int)len, spec);
    return false;
}

void grid_policy_close(struct grid_policy *policy)
{
    if (policy->ops)
        policy->ops->close(policy);
    *policy = (struct grid_policy){0};
}
