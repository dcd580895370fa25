/* The header is complete in itself, under strict warnings, in C and (included by header_alone.cpp) in C++. */
#include <stratalloc.h>
int main(void) {
    return stratalloc_version() == 0;
}
