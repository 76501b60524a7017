// A failover pair: two fo-shadow, each with an engine of fo-refengine behind a relay, which serve
// at one address in turns. One that was killed is started again, and becomes the standby.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "os/process/process.h"
#include "route/torture/processes.h"
#include "route/torture/relay.h"
#include "support/ports.h"

namespace fo::torture {

class Pair {
 public:
  class Member {
   public:
    enum class State { kStarting, kStandby, kActive };

    /// `argv` is fo-shadow's command with the engine's, but without the engine's port. The events
    /// and the log are written to the file `log`.
    Member(const boost::asio::any_io_executor& executor, std::vector<std::string> argv,
           const std::string& log)
        : log_path_(log),
          log_(log),
          relay_(executor),
          shadow_(executor, command(std::move(argv), relay_.port()),
                  [this](Engine&, const std::string& line) { on_line(line); }) {
      relay_.lead_to(shadow_.port());
    }

    [[nodiscard]] State state() const { return shadow_.runs() ? state_ : State::kStarting; }
    [[nodiscard]] Relay& relay() { return relay_; }
    [[nodiscard]] Engine& shadow() { return shadow_; }
    [[nodiscard]] const std::string& log() const { return log_path_; }
    /// Sends a signal to the engine, unless it has ended.
    void signal_engine(int signal) const {
      const auto engine = os::open_pidfd(engine_pid_);
      if (engine) os::send_signal(engine->get(), signal);
    }
    void restart() {
      state_ = State::kStarting;
      shadow_.start();
    }

   private:
    // The shell gives fo-shadow its standard error as the descriptor of the events, too.
    static std::vector<std::string> command(std::vector<std::string> argv, std::uint16_t engine) {
      const std::string url = "http://127.0.0.1:" + std::to_string(engine);
      argv.insert(argv.begin() + 1, {"--engine-url", url, "--status-fd", "7"});
      argv.insert(argv.begin(), {"/bin/bash", "-c", "exec \"$0\" \"$@\" 7>&2"});
      return argv;
    }

    void on_line(const std::string& line) {
      log_ << line << std::endl;
      const nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
      if (!event.is_object()) return;
      const std::string name = event.value("event", "");
      if (name == "child_started") engine_pid_ = event.value("pid", 0);
      if (name == "waiting") state_ = State::kStandby;
      if (name == "state" && event.value("state", "") == "active") state_ = State::kActive;
    }

    std::string log_path_;
    std::ofstream log_;
    Relay relay_;
    State state_ = State::kStarting;
    pid_t engine_pid_ = 0;
    Engine shadow_;
  };

  /// Files are in `folder`, with `name` in their names. `engine` is an engine's command without its
  /// port, with a KV cache of `kv_size`.
  Pair(const boost::asio::any_io_executor& executor, const std::string& folder,
       const std::string& name, const std::vector<std::string>& engine,
       const std::string& kv_size) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const std::string id = name + "-" + std::to_string(i);
      std::vector<std::string> argv{FO_BUILD_DIR "/bin/fo-shadow", "-q", "--id", id};
      argv.insert(argv.end(), {"--lock", folder + "/" + name + ".lock", "--publish",
                               "127.0.0.1:" + std::to_string(published_.number())});
      argv.insert(argv.end(),
                  {"--port", "-1", "--gpu-free", kv_size, "--health-interval", "100ms"});
      // A busy machine, or one that stops an engine, must not end a pair.
      for (const char* limit : {"--health-timeout", "--prove-timeout", "--prove-interval",
                                "--wake-timeout", "--sleep-timeout", "--remap-timeout"}) {
        argv.insert(argv.end(), {limit, "1h"});
      }
      argv.emplace_back("--");
      argv.insert(argv.end(), engine.begin(), engine.end());
      argv.insert(argv.end(), {"--kv-retry", "0", "--start-asleep"});
      members_[i] = std::make_unique<Member>(executor, std::move(argv), folder + "/" + id + ".log");
    }
  }

  [[nodiscard]] std::string url(const std::string& path = "") const {
    return published_.url() + path;
  }
  /// The member that serves; nullptr if there is none.
  [[nodiscard]] Member* active() { return find(Member::State::kActive); }
  [[nodiscard]] const std::array<std::unique_ptr<Member>, 2>& members() const { return members_; }
  /// Whether one serves, and the other one could.
  [[nodiscard]] bool is_whole() { return active() != nullptr && find(Member::State::kStandby); }

 private:
  Member* find(Member::State state) {
    const auto at = std::find_if(members_.begin(), members_.end(),
                                 [&](const auto& member) { return member->state() == state; });
    return at == members_.end() ? nullptr : at->get();
  }

  test::ReservedPort published_;
  std::array<std::unique_ptr<Member>, 2> members_;
};

}  // namespace fo::torture
