// What engines of fo-refengine need beside their ports: a small model, and a GMS that has its
// weights on a simulated GPU. An engine that is killed and started again finds them there.
#pragma once

#include <fcntl.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "os/file/file.h"
#include "os/process/exec.h"
#include "os/process/process.h"
#include "support/soon.h"

namespace fo::torture {

class Refengines {
 public:
  /// The size of an engine's KV cache.
  static constexpr const char* kKvSize = "16MiB";

  /// Everything is in `folder`, which exists. Sets the environment of the engines.
  explicit Refengines(const std::string& folder)
      : model_(folder + "/model"), null_(os::open_file("/dev/null", O_RDWR)) {
    std::filesystem::create_directory(folder + "/device");
    for (const auto& [name, value] : {std::pair<const char*, std::string>{"GMS_DRIVER", "sim"},
                                      {"GMS_SIM_DIR", folder + "/device"},
                                      {"GMS_SIM_CONTEXT_SIZE", "0"},
                                      {"GMS_SOCKET_DIR", folder},
                                      {"ENGINE_ID", "0"}}) {
      os::set_environment(name, value);
    }
    run({"fo-refengine", "make-model", "-q", "--hidden", "128", "--max-positions", "512", model_});
    server_.emplace(start({"gms-serve", "--devices", "0", "--tags", "weights", "-q"}));
    run({"gms-probe", "sockets", "--devices", "0", "--tags", "weights", "--wait", "1m"});
    run({"gms-load", "-q", "--role", "rw", model_});
  }
  Refengines(const Refengines&) = delete;
  Refengines& operator=(const Refengines&) = delete;
  ~Refengines() {
    server_->signal(SIGKILL);
    static_cast<void>(server_->wait(base::Deadline::never()));
  }

  /// The command of an engine, without its port.
  [[nodiscard]] std::vector<std::string> argv() const {
    return {kBin + "fo-refengine", "serve", "-q", "--model", model_, "--kv-bytes", kKvSize};
  }

 private:
  [[nodiscard]] os::Child start(std::vector<std::string> argv) const {
    argv.front().insert(0, kBin);
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    options.stdin_fd = options.stdout_fd = null_.get();
    return os::spawn(argv, options);
  }
  void run(const std::vector<std::string>& argv) const {
    os::Child child = start(argv);
    if (child.wait(test::soon()) == 0) return;
    child.signal(SIGKILL);
    static_cast<void>(child.wait(base::Deadline::never()));
    throw base::Error(base::ExitStatus::kSoftware, "run " + argv.front() + ": it has failed");
  }

  inline static const std::string kBin = FO_BUILD_DIR "/bin/";

  std::string model_;
  base::UniqueFd null_;
  std::optional<os::Child> server_;
};

}  // namespace fo::torture
