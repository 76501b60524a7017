#include "cli/output.h"

#include <cerrno>
#include <cstdio>

#include "base/error.h"

namespace fo::cli {
namespace {

[[noreturn]] void fail() {
  base::throw_errno(errno, base::ExitStatus::kIoError, "write to standard output");
}

}  // namespace

void print(std::string_view text) {
  if (!text.empty() && std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail();
}

void print_line(std::string_view text) {
  print(text);
  print("\n");
  finish_output();
}

void finish_output() {
  // A stdout that was closed from the start only matters to those who write to it: fflush of an
  // empty buffer succeeds.
  if (std::fflush(stdout) != 0) fail();
  if (std::ferror(stdout) != 0) {
    base::throw_errno(EIO, base::ExitStatus::kIoError, "write to standard output");
  }
}

}  // namespace fo::cli
