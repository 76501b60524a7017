// An oracle in the test's process, on a loop of its own thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "http/support.h"
#include "oracle/engine.h"

namespace fo::oracle::test {

class RunningOracle {
 public:
  explicit RunningOracle(EngineOptions options = {})
      : engine_(std::make_unique<Engine>(loop_.executor(), std::move(options))),
        port_(engine_->listen("127.0.0.1:0")) {
    loop_.start();
  }
  ~RunningOracle() {
    loop_.call([this] { engine_.reset(); });
  }
  RunningOracle(const RunningOracle&) = delete;
  RunningOracle& operator=(const RunningOracle&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string url(const std::string& path = "") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  Counts counts() {
    return loop_.call([this] { return engine_->counts(); });
  }
  void set(const Knobs& knobs) {
    loop_.call([&] { engine_->knobs() = knobs; });
  }

 private:
  http::test::ThreadLoop loop_;
  std::unique_ptr<Engine> engine_;
  std::uint16_t port_;
};

}  // namespace fo::oracle::test
