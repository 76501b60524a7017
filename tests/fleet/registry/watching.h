// What runs beside a test of a registry: the process that keeps a record, and a watch.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "fleet/registry/registry.h"
#include "loop/spawn.h"
#include "support/soon.h"

namespace fo::test {

/// Tends a record on a thread of its own.
class Maintaining {
 public:
  explicit Maintaining(fleet::RegisteredRecord& registered) {
    loop::spawn(loop_, registered.maintain());
    thread_ = std::thread([this] { loop_.run(); });
  }
  Maintaining(const Maintaining&) = delete;
  Maintaining& operator=(const Maintaining&) = delete;
  ~Maintaining() {
    loop_.stop();
    thread_.join();
  }

 private:
  boost::asio::io_context loop_{1};
  std::thread thread_;
};

/// A watch whose changes are read one after the other; it runs while they are.
class Watching {
 public:
  Watching(std::unique_ptr<fleet::RecordReader> registry, const std::string& prefix)
      : registry_(std::move(registry)) {
    // With its first timer, the loop opens the descriptors that it needs.
    const boost::asio::steady_timer timer(loop_);
    loop::spawn(
        loop_,
        registry_->watch(
            prefix, [this](const fleet::RegistryChange& change) { changes_.push_back(change); }),
        nullptr, stop_.slot());
  }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;
  ~Watching() {
    stop_.emit(boost::asio::cancellation_type::terminal);
    loop_.run();
  }

  /// The next change, as "put ID", "gone ID", "stale ID" or "listed".
  std::string next() {
    const base::Deadline deadline = soon();
    while (changes_.size() <= read_ && !deadline.expired()) {
      loop_.run_one_for(std::chrono::milliseconds(100));
    }
    if (changes_.size() <= read_) return "no change";
    const fleet::RegistryChange& change = changes_[read_++];
    const std::string id = change.record.key.substr(change.record.key.rfind('/') + 1);
    switch (change.kind) {
      case fleet::RegistryChange::Kind::kPut:
        last_text_ = change.record.text;
        return "put " + id;
      case fleet::RegistryChange::Kind::kStale:
        return "stale " + id;
      case fleet::RegistryChange::Kind::kGone:
        return "gone " + id;
      case fleet::RegistryChange::Kind::kListed:
        break;
    }
    return "listed";
  }
  /// Runs the watch until `holds()`.
  void run_until(const std::function<bool()>& holds) {
    const base::Deadline deadline = soon();
    while (!holds()) {
      ASSERT_FALSE(deadline.expired());
      loop_.run_one_for(std::chrono::milliseconds(100));
    }
  }
  /// The changes up to "listed", which is left out, separated by ", ".
  std::string listing() {
    std::string all;
    for (std::string change = next(); change != "listed"; change = next()) {
      all += (all.empty() ? "" : ", ") + change;
      if (change == "no change") break;
    }
    return all;
  }
  [[nodiscard]] const std::string& last_text() const { return last_text_; }

 private:
  boost::asio::io_context loop_{1};
  boost::asio::cancellation_signal stop_;
  std::unique_ptr<fleet::RecordReader> registry_;
  std::vector<fleet::RegistryChange> changes_;
  std::size_t read_ = 0;
  std::string last_text_;
};

}  // namespace fo::test
