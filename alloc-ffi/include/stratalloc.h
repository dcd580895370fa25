/*
 * stratalloc.h: control of the heap behind malloc.
 *
 * The functions are exported by libstratalloc.so. A program that may run without it looks them up:
 *
 *     const char *(*version)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "stratalloc_version");
 *
 * Each function may be called from any thread at any time, allocates nothing from the program's heap, and leaves errno as
 * it was. Results are 0 or an error number where nothing else is said.
 */
#ifndef STRATALLOC_H
#define STRATALLOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "stratalloc x.y.z". */
const char *stratalloc_version(void);

/* Renderings of the statistics. */
#define STRATALLOC_TEXT 1
#define STRATALLOC_JSON 2
#define STRATALLOC_PROMETHEUS 3

/*
 * Writes the statistics into a buffer, cut to its size and ended with a zero byte, as snprintf does.
 * Returns the length of the whole text; 0 for an unknown format.
 */
size_t stratalloc_stats(int format, char *buffer, size_t size);

/*
 * Reads one number by its name, for example "generic.current_allocated_bytes" or "tcmalloc.pageheap_free_bytes".
 * ENOENT: no such name.
 */
int stratalloc_property(const char *name, uint64_t *value);

/* Gives all free memory back to the system. Returns 1 if any went back, else 0. */
int stratalloc_release(void);

/*
 * Walks all lists of the heap and checks them. Returns 0 when everything is sound; otherwise writes a line to standard
 * error and returns 1.
 */
int stratalloc_check(void);

/* Whether the address lies in a block of this heap: 1 or 0. The address is looked up, never followed. */
int stratalloc_owns(const void *address);

/*
 * Writes the value of a setting into a buffer, as stratalloc_stats does, in the form that STRATALLOC_CONF takes.
 * Returns its length; 0 for an empty value, and for an unknown key, which makes *error ENOENT, else 0.
 * error may be NULL.
 */
size_t stratalloc_get(const char *key, char *buffer, size_t size, int *error);

/*
 * Sets a setting while the program runs, to a value in the form that STRATALLOC_CONF takes. release_delay, hard_limit,
 * soft_limit, max_total_thread_cache_bytes, foreign, invalid_free, stats_at_exit and stats_file can be changed, and
 * background_thread to true.
 * ENOENT: no such key. EINVAL: the value does not fit it. EPERM: fixed when the program starts. ENOMEM.
 */
int stratalloc_set(const char *key, const char *value);

/* A heap of its own, on pages of its own. Every function may be called from any thread. */
typedef struct stratalloc_heap stratalloc_heap;

/*
 * Makes a heap. settings are pairs as in STRATALLOC_CONF, of which backend, fallback, thp, hugetlbfs, lock, lock_time,
 * lock_budget, release_delay and hard_limit concern a heap: "" for ordinary pages, "backend:huge" for huge pages, "backend:locked" for
 * locked ones; with "fallback:never" and "lock:strict" there is memory of that kind or none.
 * Returns NULL and an error number in *error, which may be NULL: EINVAL, with a line on standard error, or ENOMEM.
 */
stratalloc_heap *stratalloc_heap_create(const char *settings, int *error);

/* Ends a heap and gives all its memory back, blocks in use included. NULL is ignored. */
void stratalloc_heap_destroy(stratalloc_heap *heap);

/* A block at a multiple of align, a power of two. NULL: no memory, or another alignment. */
void *stratalloc_heap_alloc(stratalloc_heap *heap, size_t align, size_t size);

/* The same with every byte zero. */
void *stratalloc_heap_zalloc(stratalloc_heap *heap, size_t align, size_t size);

/* Frees a block of the heap. NULL is ignored. free does the same, and malloc_usable_size knows the block. */
void stratalloc_heap_free(stratalloc_heap *heap, void *block);

/* Bytes in live blocks, rounded up to what they take. */
size_t stratalloc_heap_bytes(const stratalloc_heap *heap);

/* Gives the heap's free memory back to the system; returns how many bytes went. */
size_t stratalloc_heap_release(stratalloc_heap *heap);

#ifdef __cplusplus
}
#endif
#endif
