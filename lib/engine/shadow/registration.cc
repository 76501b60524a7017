#include "engine/shadow/registration.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/drivers/engine_api.h"
#include "engine/pair.h"
#include "engine/publish/control_paths.h"
#include "loop/backoff.h"
#include "loop/spawn.h"
#include "net/address.h"
#include "os/log.h"
#include "os/log_limit.h"

namespace fo::engine {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;

// The published address gets two thirds of this process's descriptors, four for each client, so
// that the lock and the end have the rest.
constexpr std::size_t kFdsPerClient = 6;
// The timeout for taking the sockets of the last active engine, and the pauses before a retry.
constexpr base::Duration kTakeTimeout = std::chrono::seconds(2);
constexpr base::Duration kFirstPause = std::chrono::milliseconds(20);
constexpr base::Duration kMaxPause = std::chrono::milliseconds(500);

PublisherLimits limits_of(std::size_t max_fds) {
  PublisherLimits limits;
  limits.connections = std::clamp(max_fds / kFdsPerClient, std::size_t{1}, limits.connections);
  return limits;
}

HttpFraming::Judge judge_of(const ShadowOptions& options) {
  if (options.publish_control) return {};
  return [kind = options.driver.kind](std::string_view target) {
    const std::optional<std::string> path = plain_path(target);
    if (!path) return 400;
    return is_control_path(kind, *path) ? 403 : 0;
  };
}

std::string address_of(const std::string& url) {
  const net::Url parsed = net::parse_url(url);
  return parsed.socket_path.empty() ? net::to_string(parsed.address) : parsed.socket_path;
}

}  // namespace

Registration::Registration(asio::any_io_executor executor, const ShadowOptions& options,
                           std::size_t max_fds, Course& course, loop::Children& children,
                           EngineProcess& engine, const os::StatusFd& events)
    : executor_(std::move(executor)),
      options_(options),
      course_(course),
      children_(children),
      engine_(engine),
      events_(events) {
  if (options.publish.empty()) return;
  publisher_ =
      std::make_unique<Publisher>(executor_, options.publish, address_of(options.driver.url),
                                  limits_of(max_fds), judge_of(options));
}

awaitable<void> Registration::open(Deadline deadline) {
  state_ = State::kOpen;
  if (publisher_) {
    PublishedSockets inherited;
    if (options_.failover) {
      inherited = co_await inherit(deadline);
      course_.check();
    }
    publisher_->start(std::move(inherited));
  }
  co_await enroll();
}

awaitable<void> Registration::suspend() {
  events_.write("draining");
  co_await deregister();
  course_.check();
  const Deadline drain_by = Deadline::after(options_.drain);
  co_await drain(drain_by, Successor::kFollows);
  course_.check();
}

awaitable<void> Registration::resume() {
  if (publisher_) publisher_->resume();
  co_await enroll();
  events_.write("undrained");
}

void Registration::hand_over() {
  state_ = State::kClosed;
  if (!publisher_) return;
  offered_ = publisher_->take();
  try {
    os::ServerSocket server = os::open_server_socket(handover_path(options_.lock));
    is_offering_ = true;
    loop::spawn(executor_, offer(std::move(server)));
  } catch (const Error& error) {
    os::log(os::LogLevel::kError, "hand the published sockets over: {}", error.what());
    offered_ = {};
  }
}

awaitable<void> Registration::close() {
  while (running_commands_ > 0) co_await course_.changed().wait();
  co_await deregister();
  const Deadline drain_by = Deadline::after(options_.drain);
  if (course_.is_graceful() && state_ != State::kClosed) {
    co_await drain(drain_by, Successor::kNone);
  }
  while (is_offering_ && course_.is_graceful() && !drain_by.expired()) {
    co_await course_.changed().wait(drain_by);
  }
  cut();
}

awaitable<void> Registration::enroll() {
  if (options_.register_command.empty()) co_return;
  state_ = State::kRegistered;
  const std::string failure = co_await run_command(options_.register_command);
  course_.check();
  if (!failure.empty()) throw Error(ExitStatus::kUnavailable, "register: " + failure);
  events_.write("registered");
}

awaitable<void> Registration::deregister() {
  if (state_ != State::kRegistered) co_return;
  state_ = State::kOpen;
  if (options_.deregister_command.empty()) co_return;
  const std::string failure = co_await run_command(options_.deregister_command);
  if (!failure.empty()) os::log(os::LogLevel::kError, "deregister: {}", failure);
  events_.write("deregistered");
}

awaitable<std::string> Registration::run_command(std::string command) {
  std::vector<std::string> argv{"sh", "-c", std::move(command)};
  std::vector<std::pair<std::string, std::string>> environment{
      {"FAILOVER_LOCK_ID", options_.id},
      {"FAILOVER_GENERATION", std::to_string(generation_)},
      {"FO_ENGINE_URL", options_.driver.url},
      {"FO_PUBLISH", options_.publish}};
  const Deadline deadline = Deadline::after(options_.register_timeout);
  std::string reason;
  ++running_commands_;
  try {
    const auto result =
        co_await children_.run_captured(std::move(argv), deadline, std::move(environment));
    if (!result) {
      reason = "not done within " + base::format_duration(options_.register_timeout);
    } else if (result->status != 0) {
      const std::string words = last_line(result->err);
      reason = "status " + std::to_string(result->status) + (words.empty() ? "" : ": " + words);
    }
  } catch (const Error& error) {
    reason = error.what();
  }
  --running_commands_;
  course_.changed().notify();
  co_return reason;
}

awaitable<void> Registration::drain(Deadline deadline, Successor successor) {
  if (publisher_) {
    const bool drained = co_await publisher_->drain(deadline, successor);
    if (!drained) os::log(os::LogLevel::kWarning, "drain: requests were aborted at the deadline");
  }
  co_await engine_.until_idle(deadline);
}

// Retries until `deadline`, because the last active engine may be able to hand its sockets over
// later.
awaitable<PublishedSockets> Registration::inherit(Deadline deadline) {
  loop::Backoff backoff(kFirstPause, kMaxPause);
  os::LogLimit log_limit;
  for (;;) {
    try {
      const Deadline answer_by = Deadline::after(kTakeTimeout).sooner(deadline);
      std::string path = handover_path(options_.lock);
      co_return co_await take_sockets(std::move(path), answer_by);
    } catch (const Error& error) {
      if (deadline.expired() || course_.is_ending()) throw;
      log_limit.log(os::LogLevel::kWarning, error.what(), error.what());
    }
    const Deadline retry_at = Deadline::after(backoff.next()).sooner(deadline);
    co_await course_.changed().wait(retry_at);
  }
}

awaitable<void> Registration::offer(os::ServerSocket server) {
  try {
    co_await offer_sockets(std::move(server), offered_, Deadline::never());
  } catch (const std::exception& error) {
    os::log(os::LogLevel::kError, "hand the published sockets over: {}", error.what());
  }
  offered_ = {};
  is_offering_ = false;
  course_.changed().notify();
}

}  // namespace fo::engine
