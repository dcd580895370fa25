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

#ifdef __cplusplus
}
#endif
#endif
