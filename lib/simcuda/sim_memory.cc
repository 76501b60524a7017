// The program fo-sim-memory, which lists the files that are a simulated device's memory, so that
// programs without a driver can find the processes that have them open or mapped:
//   fo-sim-memory all DEVICE    all files
//   fo-sim-memory held DEVICE   those that a process holds, visible or not
// It prints the device's folder, and for each file "DEVICE INODE SIZE NAME", in decimal numbers as
// stat(2) has them; each ends with a NUL. It changes nothing. Exit statuses are those of
// fo-exit-status(7).
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>

#include "simcuda/result.h"
#include "simcuda/settings.h"
#include "simcuda/store.h"

namespace {

using namespace fo::simcuda;

enum Status {
  kOk = 0,
  kUsage = 64,
  kUnavailable = 69,
  kOsError = 71,
  kIoError = 74,
  kDenied = 77,
  kConfig = 78
};

int fail(Status status, const std::string& reason) {
  std::fprintf(stderr, "fo-sim-memory: error: %s\n", reason.c_str());
  return status;
}

Status status_of(const std::error_code& error) {
  if (error == std::errc::no_such_file_or_directory) return kUnavailable;
  const bool denied =
      error == std::errc::permission_denied || error == std::errc::operation_not_permitted;
  return denied ? kDenied : kOsError;
}

int list(bool only_held, const std::string& device) {
  const auto dir = Settings::from_env().dir / ("device-" + device);
  const std::string what = "inspect simulated device '" + dir.native() + "'";
  try {
    const DeviceFiles found = list_files(dir, only_held);
    std::printf("%s%c", found.dir.c_str(), '\0');
    for (const DeviceFile& file : found.files) {
      std::printf("%ju %ju %ju %s%c", std::uintmax_t{file.device}, std::uintmax_t{file.id},
                  std::uintmax_t{file.size}, file.name.c_str(), '\0');
    }
  } catch (const std::system_error& error) {
    return fail(status_of(error.code()), what + ": " + error.code().message());
  } catch (const Failure&) {
    return fail(kOsError, what + ": its index file cannot be locked");
  }
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return written ? kOk : fail(kIoError, "write to standard output");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view which = argc == 3 ? argv[1] : "";
  if (which != "all" && which != "held") return fail(kUsage, "expected all or held, and a device");
  try {
    return list(which == "held", argv[2]);
  } catch (const SettingsError& error) {
    return fail(kConfig, error.what());
  }
}
