#include "rewrite.h"
void grid_rewrite_begin(struct grid_rewrite *r, bool sse, const char *tag, size_t n){(void)sse;(void)tag;memset(r,0,sizeof *r);r->tag_len=n;}
bool grid_rewrite_feed(struct grid_rewrite *r, const struct grid_str *s, size_t n, bool last, void (*put)(void *, struct grid_str), void *ctx){(void)r;(void)s;(void)n;(void)last;(void)put;(void)ctx;return true;}
