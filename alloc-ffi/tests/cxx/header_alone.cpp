#include "../c/header_alone.c"
