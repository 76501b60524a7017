// Clients that ask a router of a test all the time, and check their answers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "route/fleet.h"

namespace fo::test {

/// One token each millisecond, so that answers last.
inline oracle::EngineOptions slow_engine() {
  oracle::EngineOptions options;
  options.knobs.gap = std::chrono::milliseconds(1);
  return options;
}

class Load {
 public:
  /// `streams` and `whole` are the numbers of clients that ask for a stream, and for an answer in
  /// one piece.
  struct Clients {
    std::size_t streams = 0;
    std::size_t whole = 0;
  };
  /// A started answer continues on another worker only if its request has no knobs of the oracle.
  Load(Fleet& fleet, const Clients& clients, nlohmann::json body)
      : fleet_(fleet), body_(std::move(body)), text_(fleet.text_of(body_)) {
    for (std::size_t i = 0; i < clients.streams; ++i) calls_.push_back(begin(true));
    for (std::size_t i = 0; i < clients.whole; ++i) calls_.push_back(begin(false));
  }
  /// Checks the answers that are complete, and begins further requests.
  void go_on() {
    for (One& one : calls_) {
      if (!one.call->has_ended()) continue;
      check(one);
      one = begin(one.is_streamed);
    }
  }
  void run_until(const std::function<bool()>& done) {
    fleet_.run_until([&] {
      go_on();
      return done();
    });
  }
  /// Until so many more answers are complete.
  void run(int answers) {
    const int before = answered_;
    run_until([&] { return answered_ >= before + answers; });
  }
  /// Waits for what is in flight.
  void end() {
    for (const One& one : calls_) {
      fleet_.run_until([&] { return one.call->has_ended(); });
      check(one);
    }
    calls_.clear();
  }

 private:
  struct One {
    bool is_streamed;
    Client call;
  };

  One begin(bool is_streamed) {
    body_["stream"] = is_streamed;
    return {is_streamed, fleet_.begin(body_)};
  }
  void check(const One& one) {
    ++answered_;
    EXPECT_EQ(one.call->status(), 200) << one.call->body();
    EXPECT_EQ(one.call->text(), text_);
    EXPECT_TRUE(one.call->is_whole());
    if (!one.is_streamed) return;
    const std::vector<std::string> events = one.call->events();
    EXPECT_EQ(std::ranges::count(events, "[DONE]"), 1);
    EXPECT_EQ(events.back(), "[DONE]");
  }

  Fleet& fleet_;
  nlohmann::json body_;
  const std::string text_;
  std::vector<One> calls_;
  int answered_ = 0;
};

}  // namespace fo::test
