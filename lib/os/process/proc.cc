#include "os/process/proc.h"

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/units.h"

namespace fo::os {
namespace {

// Calls visit(number, path) for each entry of `folder` whose name is a number.
template <typename Visit>
std::error_code each_number(const std::string& folder, const Visit& visit) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string& path = entries->path().native();
    const auto number = base::parse_uint(entries->path().filename().native());
    if (number) visit(*number, path);
  }
  return error;
}

}  // namespace

void each_process(const std::function<void(pid_t)>& visit, const std::string& proc) {
  const std::error_code error = each_number(
      proc, [&](std::uint64_t pid, const std::string&) { visit(static_cast<pid_t>(pid)); });
  if (error) {
    throw base::Error(base::ExitStatus::kUnavailable, "inspect " + base::quoted(proc), error);
  }
}

bool each_fd(pid_t pid, const std::function<void(int, const std::string&)>& visit,
             const std::string& proc) {
  const std::error_code error = each_number(
      proc + "/" + std::to_string(pid) + "/fd",
      [&](std::uint64_t fd, const std::string& path) { visit(static_cast<int>(fd), path); });
  return error != std::errc::permission_denied && error != std::errc::operation_not_permitted;
}

}  // namespace fo::os
