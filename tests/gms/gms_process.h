// A real gms-serve on a simulated device or a GPU, with private folders for one test.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "cuda/test_device.h"
#include "gms/client/rpc_client.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "os/socket/unix_socket.h"
#include "support/await.h"
#include "support/environment.h"
#include "support/soon.h"

namespace fo::gms {

/// Of GPUs, and of simulated devices by default.
inline constexpr base::ByteCount kGranule = 2 * base::kMiB;

using fo::test::soon;

/// Processes whose parent is `pid`.
inline std::vector<pid_t> children_of(pid_t pid) {
  const std::string number = std::to_string(pid);
  std::ifstream file("/proc/" + number + "/task/" + number + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

/// How many descriptors a process has open.
inline std::size_t fd_count(pid_t pid) {
  const std::filesystem::directory_iterator fds("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(fds), end(fds)));
}

/// Sets up the environment of a test with a device, in this process too.
class TestDevice : public testing::Test {
 protected:
  void SetUp() override {
    // In a folder with enough space: containers have 64 MiB by default.
    std::error_code unknown;
    const auto shm = std::filesystem::space("/dev/shm", unknown);
    const bool roomy = !unknown && shm.available > base::kGiB;
    std::string pattern = std::string(roomy ? "/dev/shm" : "/tmp") + "/gms-test-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    set("GMS_SIM_DIR", dir_ + "/sim");
    set("GMS_SIM_LIBRARY", FO_BUILD_DIR "/lib/sim/libcuda.so.1");
    if (!test::on_gpu()) set("GMS_SIM_VRAM", std::to_string(device_size_));
    set("GMS_DRIVER", test::driver());
    set("GMS_SOCKET_DIR", dir_);
    if (test::on_gpu()) device_size_ = cuda::total_memory();
    if (device_size_ == 0) FO_SKIP("gpu", cuda::kNoGpu);
  }
  void TearDown() override {
    // A dying process may still remove its files.
    const base::Deadline deadline = soon();
    std::error_code failed;
    do {
      failed.clear();
      std::filesystem::remove_all(dir_, failed);
    } while (failed && !deadline.expired());
    EXPECT_FALSE(failed) << failed.message();
  }

  void set(const char* name, const std::string& value) { environment_.set(name, value); }
  void unset(const char* name) { environment_.unset(name); }
  [[nodiscard]] std::string path(const std::string& name) const { return dir_ + "/" + name; }
  /// A share of device 0 in 256ths; for a simulated one, in MiB.
  [[nodiscard]] base::ByteCount parts(base::ByteCount count) const {
    return count * (device_size_ / 256 / base::kMiB * base::kMiB);
  }

  base::ByteCount device_size_ = 256 * base::kMiB;
  std::string dir_;

 private:
  test::Environment environment_;
};

/// gms-serve with these arguments, ready when the constructor returns; killed by the destructor.
class GmsProcess {
 public:
  explicit GmsProcess(std::vector<std::string> arguments) : child_(start(std::move(arguments))) {
    pollfd ready{ready_.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, soon().poll_timeout()), 1);
    char mark = 0;
    is_ready_ = ::read(ready_.get(), &mark, 1) == 1;
  }
  ~GmsProcess() {
    if (!ended_) {
      child_.signal(SIGKILL);
      static_cast<void>(child_.wait(soon()));
    }
  }
  GmsProcess(const GmsProcess&) = delete;
  GmsProcess& operator=(const GmsProcess&) = delete;

  [[nodiscard]] bool is_ready() const { return is_ready_; }
  [[nodiscard]] const os::Child& child() const { return child_; }
  /// Its exit status; -1 if it does not end.
  int wait() {
    const auto status = child_.wait(soon());
    ended_ = status.has_value();
    return status.value_or(-1);
  }
  int terminate() {
    child_.signal(SIGTERM);
    return wait();
  }

 private:
  os::Child start(std::vector<std::string> arguments) {
    os::Pipe pipe;
    ready_ = std::move(pipe.reader);
    const int ready = pipe.writer.get();
    arguments.insert(arguments.begin(), FO_BUILD_DIR "/bin/gms-serve");
    arguments.insert(arguments.end(), {"--ready-fd", std::to_string(ready), "-q"});
    return os::spawn(arguments, {.parent_death_signal = SIGKILL, .keep_fds = {ready}});
  }

  base::UniqueFd ready_;
  os::Child child_;
  bool is_ready_ = false;
  bool ended_ = false;
};

/// One server on one socket.
class OneServer : public TestDevice {
 protected:
  void SetUp() override {
    TestDevice::SetUp();
    socket_ = path("gms.sock");
  }
  void start(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"--socket-path", socket_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    server_ = std::make_unique<GmsProcess>(std::move(arguments));
    ASSERT_TRUE(server_->is_ready());
  }

  void TearDown() override {
    server_.reset();
    TestDevice::TearDown();
  }

  [[nodiscard]] RpcClient connect() const {
    return RpcClient::connect(socket_, soon(), RpcClient::Retry::kUntilTheDeadline);
  }
  /// A client with this lock.
  [[nodiscard]] RpcClient enter(LockType type) const {
    RpcClient client = connect();
    EXPECT_TRUE(client.request_lock(type, soon()).grant) << to_string(type);
    return client;
  }

  [[nodiscard]] GetRuntimeStateResponse state() const { return connect().runtime_state(); }
  /// Polls the server until its state satisfies `wanted`.
  void expect_soon(const std::function<bool(const GetRuntimeStateResponse&)>& wanted) const {
    test::await([&] { return wanted(state()); });
  }

  std::string socket_;
  std::unique_ptr<GmsProcess> server_;
};

}  // namespace fo::gms
