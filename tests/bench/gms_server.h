// Common parts of programs that measure a gms-serve: a device, simulated in its own folder or a GPU
// (support/driver.h), and a server on it.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "support/driver.h"
#include "support/temp_dir.h"

namespace fo::bench {

inline base::Deadline soon() { return base::Deadline::after(std::chrono::minutes(1)); }

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw base::Error(base::ExitStatus::kSoftware, what);
}

/// A folder in memory, removed by the destructor, and a device; a simulated one has this size.
class Device {
 public:
  Device(base::ByteCount size, base::ByteCount granularity) {
    ::setenv("GMS_DRIVER", test::driver().c_str(), 1);
    ::setenv("GMS_SIM_DIR", path("sim").c_str(), 1);
    ::setenv("GMS_SIM_LIBRARY", FO_BUILD_DIR "/lib/sim/libcuda.so.1", 1);
    ::setenv("GMS_SIM_DEVICES", "1", 1);
    ::setenv("GMS_SIM_GRANULARITY", std::to_string(granularity).c_str(), 1);
    ::setenv("GMS_SIM_VRAM", std::to_string(size).c_str(), 1);
    os::raise_fd_limit();
  }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }

 private:
  const test::TempDir folder_{"/dev/shm"};
};

/// gms-serve for one socket, ready when the constructor returns; the destructor ends it.
class Server {
 public:
  explicit Server(const std::string& socket) : child_(start(socket)) {
    pollfd ready{ready_.get(), POLLIN, 0};
    char mark = 0;
    expect(::poll(&ready, 1, soon().poll_timeout()) == 1 && ::read(ready_.get(), &mark, 1) == 1,
           "start gms-serve: it is not ready");
  }
  ~Server() {
    child_.signal(SIGTERM);
    static_cast<void>(child_.wait(base::Deadline::never()));
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] const os::Child& child() const { return child_; }

 private:
  os::Child start(const std::string& socket) {
    os::Pipe pipe;
    ready_ = std::move(pipe.reader);
    const int ready = pipe.writer.get();
    return os::spawn({FO_BUILD_DIR "/bin/gms-serve", "-q", "--socket-path", socket, "--ready-fd",
                      std::to_string(ready)},
                     {.parent_death_signal = SIGKILL, .keep_fds = {ready}});
  }

  base::UniqueFd ready_;
  os::Child child_;
};

}  // namespace fo::bench
