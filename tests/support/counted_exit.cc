// In builds that count lines (the preset "coverage"), replaces _exit, so that a process that ends
// with it, like forked children, stores its counts, too.
extern "C" {
#include <gcov.h>
}

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names for --wrap=_exit
extern "C" [[noreturn]] void __real__exit(int status);
extern "C" [[noreturn]] void __wrap__exit(int status);

void __wrap__exit(int status) {
  __gcov_dump();
  __real__exit(status);
}
// NOLINTEND(bugprone-reserved-identifier)
