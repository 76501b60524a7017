#include "cli/screen/output.h"

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
  // fflush succeeds for an empty buffer, so a stdout that was closed at start is an error only if
  // something was printed.
  if (std::fflush(stdout) != 0) fail();
  if (std::ferror(stdout) != 0) {
    base::throw_errno(EIO, base::ExitStatus::kIoError, "write to standard output");
  }
}

}  // namespace fo::cli
