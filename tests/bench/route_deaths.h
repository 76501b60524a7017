// What the death of one engine does to the requests of others: the times to their first tokens
// before it, and while the streams of the dead engine go on at the other engines.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "route_load.h"
#include "route_peers.h"

namespace fo::bench {

/// The requests around a death: streams that keep the engines busy, and short requests, whose first
/// tokens are timed.
class LoadOfDeath {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kShort = 8;
  /// Of the measurement before the death, and of that after it.
  static constexpr auto kTime = std::chrono::seconds(1);

  explicit LoadOfDeath(std::uint16_t port) : port_(port) {}

  /// Kills `victim` while there are `streams` streams of 100 tokens. One call. Throws base::Error
  /// if a request fails, or no stream is resumed.
  boost::asio::awaitable<void> run(std::size_t streams, Engine& victim) {
    const auto loop = co_await boost::asio::this_coro::executor;
    for (std::size_t i = 0; i < streams; ++i) {
      loop::spawn(loop, send_streams());
    }
    // Until each engine has its share.
    co_await loop::pause_for(std::chrono::milliseconds(500));
    for (std::size_t i = 0; i < kShort; ++i) {
      loop::spawn(loop, send_short());
    }
    co_await loop::pause_for(kTime);
    victim.kill();
    is_dead_ = true;
    co_await loop::pause_for(kTime);
    is_over_ = true;
    while (running_ > 0) co_await loop::pause_for(std::chrono::milliseconds(1));
    const std::string what = "send requests beside an engine's death: ";
    if (failed_ > 0) fail(what + std::to_string(failed_) + " of them failed");
    if (resumed_ == 0) fail(what + "no stream was resumed");
  }

  /// In seconds: of the requests that ended before the death, and of those that began after it.
  [[nodiscard]] const std::vector<double>& before() const { return before_; }
  [[nodiscard]] const std::vector<double>& after() const { return after_; }
  [[nodiscard]] std::size_t resumed() const { return resumed_; }

 private:
  [[noreturn]] static void fail(const std::string& what) {
    throw base::Error(base::ExitStatus::kSoftware, what);
  }

  boost::asio::awaitable<void> send_streams() {
    ++running_;
    Client client(port_);
    while (!is_over_) {
      const bool is_answered = co_await client.ask(completion(100, true));
      if (!is_answered) ++failed_;
      if (is_answered && client.has_received(": fo-route: resumed")) ++resumed_;
    }
    --running_;
  }

  boost::asio::awaitable<void> send_short() {
    ++running_;
    Client client(port_);
    while (!is_over_) {
      try {
        const bool was_dead = is_dead_;
        const Clock::time_point begin = Clock::now();
        co_await client.begin(completion(1, true));
        co_await client.read_until("data: ");
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        if (was_dead == is_dead_) (is_dead_ ? after_ : before_).push_back(seconds);
        bool goes_on = true;
        while (goes_on) goes_on = co_await client.read();
      } catch (const base::Error&) {
        ++failed_;
        client.close();
      }
    }
    --running_;
  }

  std::uint16_t port_;
  bool is_dead_ = false;
  bool is_over_ = false;
  std::size_t running_ = 0;
  std::size_t resumed_ = 0;
  std::size_t failed_ = 0;
  std::vector<double> before_;
  std::vector<double> after_;
};

}  // namespace fo::bench
