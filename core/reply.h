/*
 * reply.h - answers that the gateway makes itself
 *
 * Story     route.c and learn.c ask for one by its row of behaviour.md L and O.41; the text takes the shape of the API
 *           that was asked: Anthropic's on /v1/messages, OpenAI's elsewhere.
 * Promise   An answer quotes nothing of a request. All texts are constants: no memory, no failure.
 */
#ifndef GRID_REPLY_H
#define GRID_REPLY_H

#include "str.h"

/* The field at fault, where OpenAI's clients look for one. */
#define GRID_REPLY_PARAM(name) ",\"param\":\"" name "\""

/* One table: enum, status, OpenAI type, code, param or "", Anthropic type, Retry-After, message. */
#define GRID_REPLIES(X)                                                                                                \
    X(MODEL_REQUIRED, 400, "invalid_request_error", "model_required", "", "invalid_request_error", "",                 \
      "This request names no model, in its body or in the model header.")                                              \
    X(MODEL_AMBIGUOUS, 400, "invalid_request_error", "model_ambiguous", "", "invalid_request_error", "",               \
      "The model header is given more than once, with different values.")                                              \
    X(MODEL_NOT_FOUND, 404, "invalid_request_error", "model_not_found", "", "not_found_error", "",                     \
      "No site of this grid serves the model.")                                                                        \
    X(NO_ROUTE, 404, "invalid_request_error", "no_route", "", "not_found_error", "", "This grid serves no model now.") \
    X(NO_HEALTHY_SITE, 503, "server_error", "no_healthy_site", "", "overloaded_error", "5",                            \
      "No site that serves the model takes new requests now.")                                                         \
    X(STORED_NOT_FOUND, 404, "invalid_request_error", "not_found", "", "not_found_error", "",                          \
      "No stored response or conversation is found under this id.")                                                    \
    X(PREVIOUS_NOT_FOUND, 404, "invalid_request_error", "previous_response_not_found",                                 \
      GRID_REPLY_PARAM("previous_response_id"), "not_found_error", "", "The previous response is not found.")          \
    X(SITE_UNAVAILABLE, 503, "server_error", "site_unavailable", "", "overloaded_error", "5",                          \
      "The site that holds this takes no requests now.")                                                               \
    X(BODY_TOO_LARGE, 413, "invalid_request_error", "body_too_large", "", "request_too_large", "",                     \
      "The body is larger than this gateway reads.")                                                                   \
    X(UNSUPPORTED_CODING, 415, "invalid_request_error", "unsupported_content_encoding", "", "invalid_request_error",   \
      "", "The body's content encoding cannot be read here.")                                                          \
    X(UPGRADE_RESPONSES, 426, "invalid_request_error", "unsupported_upgrade", "", "invalid_request_error", "",         \
      "This path does not upgrade: use plain HTTP.")                                                                   \
    X(UPGRADE, 400, "invalid_request_error", "unsupported_upgrade", "", "invalid_request_error", "",                   \
      "This gateway does not upgrade connections.")                                                                    \
    X(METHOD_NOT_ALLOWED, 405, "invalid_request_error", "method_not_allowed", "", "invalid_request_error", "",         \
      "The method is not allowed here.")                                                                               \
    X(BAD_REQUEST, 400, "invalid_request_error", "bad_request", "", "invalid_request_error", "",                       \
      "The request could not be read.")                                                                                \
    X(NOT_FOUND, 404, "invalid_request_error", "not_found", "", "not_found_error", "", "Not found.")                   \
    X(REQUEST_TIMEOUT, 408, "invalid_request_error", "request_timeout", "", "invalid_request_error", "",               \
      "The request did not arrive in time.")                                                                           \
    X(HEADERS_TOO_LARGE, 431, "invalid_request_error", "headers_too_large", "", "invalid_request_error", "",           \
      "The request's headers are too large.")                                                                          \
    X(INTERNAL, 500, "server_error", "internal_error", "", "api_error", "", "The gateway failed.")                     \
    X(UPSTREAM_UNAVAILABLE, 502, "server_error", "upstream_unavailable", "", "api_error", "",                          \
      "The site could not be reached or ended the connection.")                                                        \
    X(UNAVAILABLE, 503, "server_error", "upstream_unavailable", "", "overloaded_error", "5",                           \
      "The site could not be reached or ended the connection.")                                                        \
    X(OVERLOADED, 503, "server_error", "overloaded", "", "overloaded_error", "5", "This gateway is at its limits.")    \
    X(UPSTREAM_TIMEOUT, 504, "server_error", "upstream_timeout", "", "api_error", "",                                  \
      "The site did not answer in time.")
enum grid_reply_kind {
#define GRID_REPLY_ENUM(id, status, type, code, param, anthropic, retry, message) GRID_REPLY_##id,
    GRID_REPLIES(GRID_REPLY_ENUM)
#undef GRID_REPLY_ENUM
        GRID_N_REPLIES
};

/* The views in *out_reply live for ever. */
void grid_reply_make(enum grid_reply_kind kind, enum grid_api api, struct grid_reply *out_reply);

/* The kind that stands for a failure of the proxy (behaviour.md O.41). */
enum grid_reply_kind grid_reply_kind_of(int status, bool overloaded);

/* 200 with a JSON body that lives as long as the reply's user keeps it. */
void grid_reply_json(struct grid_str body, struct grid_reply *out_reply);

#endif
