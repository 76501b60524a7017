#include "canary/daemon/verdict_writer.h"

#include <chrono>
#include <optional>
#include <utility>

#include "base/error.h"
#include "canary/judge/acquittal.h"
#include "os/log.h"

namespace fo::canary {
namespace {

using base::Deadline;
using base::Error;
using boost::asio::awaitable;

constexpr base::Duration kPutTimeout = std::chrono::seconds(5);
constexpr base::Duration kPutRetry = std::chrono::seconds(1);

}  // namespace

void VerdictWriter::publish(const std::string& id) {
  (workers_.is_convicted(id) ? convictions_ : others_).ids.add(id);
  gone_.erase(id);
  changed_.notify();
}

void VerdictWriter::withdraw(const std::string& id) {
  gone_.add(id);
  changed_.notify();
}

awaitable<void> VerdictWriter::run() {
  for (;;) {
    if (!workers_.are_verdicts_listed()) {
      co_await changed_.wait();
      continue;
    }
    Queue* next = nullptr;
    Deadline retry = Deadline::never();
    for (Queue* const queue : {&convictions_, &others_}) {
      if (queue->ids.empty()) continue;
      const Deadline its_turn = Deadline::after(queue->next_at - Deadline::Clock::now());
      if (next == nullptr && its_turn.expired()) next = queue;
      retry = retry.sooner(its_turn);
    }
    if (next != nullptr) {
      const std::string id = next->ids.take();
      is_convicting_ = next == &convictions_;
      const bool is_written = co_await write(id);
      is_convicting_ = false;
      if (!is_written) {
        next->next_at = Deadline::Clock::now() + kPutRetry;
        // If the worker has gone meanwhile, its record is removed instead.
        if (workers_.all().contains(id)) publish(id);
      }
      // Wakes await_convictions().
      changed_.notify();
    } else if (!gone_.empty()) {
      std::string id = gone_.take();
      if (!workers_.all().contains(id)) co_await remove(std::move(id));
    } else {
      co_await changed_.wait(retry);
    }
  }
}

awaitable<void> VerdictWriter::await_convictions(Deadline deadline) {
  while (has_convictions() && !deadline.expired()) co_await changed_.wait(deadline);
}

// Returns false if the registry did not accept the verdict.
awaitable<bool> VerdictWriter::write(std::string id) {
  std::optional<fleet::Record> record = workers_.verdict_of(id, now());
  if (!record) co_return true;
  try {
    const Deadline deadline = Deadline::after(kPutTimeout);
    if (workers_.is_convicted(id)) {
      co_await convict(id, deadline);
    } else {
      co_await registry_.put(*std::move(record), deadline);
    }
    counts_.verdicts_written.add();
    if (!std::exchange(counts_.registry_is_up, true)) {
      os::log(os::LogLevel::kInfo, "registry: accepts verdicts again");
    }
    co_return true;
  } catch (const Error& error) {
    counts_.verdicts_failed.add();
    counts_.registry_is_up = false;
    log_limit_.log(os::LogLevel::kWarning, "put", std::string("write a verdict: ") + error.what());
  }
  co_return false;
}

awaitable<void> VerdictWriter::convict(std::string id, Deadline deadline) {
  const std::string key = fleet::verdict_key(id, writer_);
  const fleet::Edit edit = [&](const std::string& present) {
    if (acquits_since(present)) {
      // The watch of the registry has not reported this acquittal yet.
      workers_.apply({.record = {.key = key, .text = present}}, now());
    }
    const std::optional<fleet::Record> record = workers_.verdict_of(id, now());
    return record && workers_.is_convicted(id) ? record->text : present;
  };
  co_await registry_.edit_or_create(key, edit, deadline);
}

awaitable<void> VerdictWriter::remove(std::string id) {
  try {
    const Deadline deadline = Deadline::after(kPutTimeout);
    std::string key = fleet::verdict_key(id, writer_);
    co_await registry_.remove(std::move(key), deadline);
  } catch (const Error& error) {
    // The verdict in the record expires.
    log_limit_.log(os::LogLevel::kWarning, "remove",
                   std::string("remove a verdict: ") + error.what());
  }
}

}  // namespace fo::canary
