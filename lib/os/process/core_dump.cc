#include "os/process/core_dump.h"

#include <fcntl.h>

#include "base/error.h"
#include "os/file/file.h"
#include "os/log.h"

namespace fo::os {

void limit_core_dumps() {
  try {
    const base::UniqueFd fd = open_file("/proc/self/coredump_filter", O_WRONLY);
    write_all(fd.get(), "0x10", "limit core dumps");
  } catch (const base::Error& error) {
    log(LogLevel::kInfo, "{}", error.what());
  }
}

}  // namespace fo::os
