#include "lock/lockd/lockd_service.h"

#include <poll.h>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/error.h"
#include "loop/adopt.h"
#include "loop/spawn.h"
#include "os/log.h"

namespace fo::lock {

namespace asio = boost::asio;
using os::LogLevel;

LockdService::LockdService(asio::io_context& io, std::string state_path, const LoadedState& loaded,
                           std::chrono::milliseconds reconnect_window,
                           std::optional<std::chrono::milliseconds> expiry, Callbacks callbacks)
    : io_(io),
      state_path_(std::move(state_path)),
      callbacks_(std::move(callbacks)),
      model_(reconnect_window, loaded, watch_running(loaded.state), now(), expiry),
      timer_(io) {}

LockdTime LockdService::now() {
  return {std::chrono::steady_clock::now(), std::chrono::system_clock::now()};
}

void LockdService::start() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    loop::spawn(io_, wait_for_end(i), [this](std::exception_ptr error) {
      if (error) callbacks_.on_failure(std::move(error));
    });
  }
  apply();
}

std::vector<RecordedProcess> LockdService::watch_running(const LockdState& state) {
  std::vector<RecordedProcess> running;
  for (const RecordedProcess& process : state.processes) {
    std::optional<base::UniqueFd> pidfd = open_running(process);
    if (!pidfd) continue;
    running.push_back(process);
    asio::posix::stream_descriptor watched(io_);
    loop::adopt(watched, std::move(*pidfd), "watch a process");
    running_.emplace_back(process, std::move(watched));
  }
  return running;
}

asio::awaitable<void> LockdService::wait_for_end(std::size_t index) {
  asio::posix::stream_descriptor& pidfd = running_[index].second;
  boost::system::error_code error;
  pollfd ended{pidfd.native_handle(), POLLIN, 0};
  // The wait may return without an event, and this event may release the lock: poll() decides.
  while (::poll(&ended, 1, 0) <= 0) {
    co_await pidfd.async_wait(asio::posix::descriptor_base::wait_read,
                              asio::redirect_error(asio::use_awaitable, error));
    if (error) {
      throw base::Error(base::ExitStatus::kOsError, "wait for a process", std::error_code(error));
    }
  }
  pidfd.close(error);
  model_.process_ended(running_[index].first, now());
  apply();
}

void LockdService::apply() {
  LockdEffects effects = model_.take_effects();
  for (const LockdEffects::Note& note : effects.notes) {
    const LogLevel level = note.is_warning ? LogLevel::kWarning : LogLevel::kInfo;
    if (note.origin.empty()) {
      os::log(level, "{}", note.text);
    } else {
      notes_.log(level, note.origin, note.text);
    }
  }
  for (const auto& [id, answer] : effects.answers) callbacks_.on_answer(id, answer);
  if (effects.record) record(*effects.record);
  if (const auto at = model_.wake_at()) {
    timer_.expires_at(*at);
    timer_.async_wait([this](const boost::system::error_code& ec) {
      if (ec) return;
      model_.tick(now());
      apply();
    });
  } else {
    timer_.cancel();
  }
}

void LockdService::record(const LockdState& state) {
  is_recording_ = true;
  asio::post(disk_, [this, text = encode_state(state)] {
    std::optional<std::string> error;
    try {
      write_state(state_path_, text);
    } catch (const std::exception& failure) {
      error = failure.what();
    }
    asio::post(io_, [this, error] {
      is_recording_ = false;
      model_.recorded(error, now());
      apply();
      callbacks_.on_recorded();
    });
  });
}

}  // namespace fo::lock
