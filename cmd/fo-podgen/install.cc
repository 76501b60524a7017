#include <array>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/units.h"
#include "cli/screen/output.h"
#include "commands.h"
#include "os/file/file.h"

namespace fo::fo_podgen {
namespace {

namespace fs = std::filesystem;
using base::Error;
using base::ExitStatus;

// A tool that does not exist is skipped, because a tools image may omit some.
constexpr std::array<std::string_view, 13> kTools = {
    "fo-canary", "fo-podgen", "fo-reg",   "fo-route",        "fo-shadow", "gms-load", "gms-lock",
    "gms-lockd", "gms-probe", "gms-save", "gms-remap-check", "gms-serve", "gms-stat"};
constexpr std::array<std::string_view, 1> kHelpers = {"fo-gpu"};
constexpr base::ByteCount kMaxBytes = 256 * base::kMiB;

int copy_all(const fs::path& from, const fs::path& to, std::span<const std::string_view> names) {
  std::error_code error;
  fs::create_directories(to, error);
  if (error) throw Error(ExitStatus::kCannotCreate, "create " + base::quoted(to.native()), error);
  int copied = 0;
  for (const std::string_view name : names) {
    const fs::path program = from / name;
    if (!fs::is_regular_file(program, error)) continue;
    // The write is atomic: a process that starts the program meanwhile gets the old or the new one.
    os::write_file_atomic(to / name, os::read_file(program, kMaxBytes), 0755);
    ++copied;
  }
  return copied;
}

}  // namespace

ExitStatus install(const Options& options) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) throw Error(ExitStatus::kOsError, "find the running program", error);
  const fs::path bin = self.parent_path();
  const fs::path folder = options.folder;
  const int copied = copy_all(bin, folder / "bin", kTools) +
                     copy_all(bin.parent_path() / "libexec/fo", folder / "libexec/fo", kHelpers);
  cli::print_line(options.common.json
                      ? "{\"installed\": " + std::to_string(copied) + "}"
                      : std::to_string(copied) + " programs installed in " + folder.native());
  return ExitStatus::kOk;
}

}  // namespace fo::fo_podgen
