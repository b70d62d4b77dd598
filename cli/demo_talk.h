/*
 * demo_talk.h - what is said in the demo
 *
 * Story     A support assistant with a long handbook as its system prompt, and a person who pastes a piece of log with
 *           every question. The texts are made here, the same in every run.
 * Promise   Bodies have the members, and the order of members, that the official SDK for Python sends.
 * Not here  Sending (demo_client.c), the order of events (demo.c).
 */
#ifndef GRID_DEMO_TALK_H
#define GRID_DEMO_TALK_H

#include <grid/grid.h>
#include <jansson.h>

#define GRID_TALK_TURNS 8u

/* The list of messages with the system prompt in it; NULL without memory. The caller decrefs it. */
json_t *grid_demo_talk_new(void);

/* Appends the question of turn 1, 2, …; any number has one. */
bool grid_demo_talk_ask(json_t *messages, unsigned turn);

/* Appends the model's answer. */
bool grid_demo_talk_hear(json_t *messages, const char *words, size_t len);

/* The body of a streamed chat completion, to be freed; NULL without memory. */
char *grid_demo_talk_body(json_t *messages, unsigned max_tokens);

/* A short request of somebody else, whose prompt is like no other; to be freed. */
char *grid_demo_talk_neighbour(unsigned number, unsigned max_tokens);

#endif
