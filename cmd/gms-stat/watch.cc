#include "watch.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/screen/screen.h"
#include "gms/client/discover.h"
#include "gms/stat/stat_watch.h"
#include "os/process/signals.h"
#include "os/socket/unix_socket.h"
#include "patient_output.h"

namespace fo::gms_stat {
namespace {

using base::Deadline;

// A change is marked for this long, or until the next query if that is later.
constexpr base::Duration kMarked = std::chrono::seconds(3);

class Watcher {
 public:
  Watcher(const Options& options, const std::string& dir, const std::string& socket)
      : options_(options), dir_(dir), socket_(socket) {
    title_ = "gms-stat  " + (socket.empty() ? dir : socket) + "  every " +
             base::format_duration(*options.watch);
    const bool is_drawn = !options.common.json && cli::Screen::is_there();
    sigset_t signals = os::terminating_signals();
    if (is_drawn) {
      sigaddset(&signals, SIGWINCH);
      sigaddset(&signals, SIGTSTP);
    }
    os::block_signals(signals);
    signals_ = os::open_signal_fd(signals);
    if (is_drawn) screen_.emplace(output_.fd());
  }

  void run() {
    while (!ended_) {
      const Deadline next = Deadline::after(*options_.watch);
      std::vector<gms::StatRow> rows = look();
      if (ended_) return;
      show(watch_.update(std::move(rows), std::chrono::system_clock::now()));
      wait(next);
    }
  }

 private:
  [[nodiscard]] std::vector<gms::FoundSocket> sockets() const {
    if (socket_.empty()) return gms::find_sockets(dir_);
    const std::filesystem::path path(socket_);
    auto named = gms::parse_socket_name(path.filename().native());
    gms::FoundSocket socket = named.value_or(gms::FoundSocket{});
    socket.path = socket_;
    return {std::move(socket)};
  }

  // Queries all servers; each gets an equal share of the remaining time, as without --watch. A
  // round of queries ends before the next one begins.
  std::vector<gms::StatRow> look() {
    std::vector<gms::FoundSocket> all = sockets();
    const Deadline deadline = Deadline::after(std::min(options_.timeout, *options_.watch));
    std::vector<gms::StatRow> rows;
    auto left = static_cast<std::int64_t>(all.size());
    for (gms::FoundSocket& socket : all) {
      take_signals();
      if (redraw_) draw();
      if (ended_) break;
      rows.push_back(gms::read_row(std::move(socket), options_.stat,
                                   Deadline::after(*deadline.remaining() / left--)));
    }
    return rows;
  }

  void show(const std::vector<gms::StatWatch::Change>& changes) {
    if (screen_) return draw();
    for (const gms::StatWatch::Change& change : changes) {
      put((options_.common.json ? gms::to_json(change) : gms::to_text(change)) + "\n");
    }
  }

  void draw() {
    const auto now = std::chrono::system_clock::now();
    const auto marked = std::chrono::duration_cast<std::chrono::system_clock::duration>(
        std::max(kMarked, *options_.watch));
    redraw_ = false;
    const cli::Screen::Size size = screen_->size();
    put(screen_->drawing(watch_.screen(size.lines, size.columns, title_, now, now - marked,
                                       screen_->has_colors())));
  }

  // Writes the text. Its rest is dropped if the end was requested or the screen was restored
  // meanwhile.
  void put(std::string_view text) {
    bool restored = false;
    while (!text.empty() && !ended_ && !restored) {
      const bool has_room = poll_output(POLLOUT, Deadline::never());
      restored = take_signals();
      if (has_room && !ended_ && !restored) text.remove_prefix(output_.write(text));
    }
  }

  // Waits until the next query, or the end.
  void wait(const Deadline& next) {
    while (!ended_ && !next.expired()) {
      if (redraw_) {
        draw();
        continue;
      }
      static_cast<void>(poll_output(0, next));
      take_signals();
    }
  }

  // Waits until stdout is ready for `events`, or signals are pending; returns whether it is ready.
  [[nodiscard]] bool poll_output(short events, const Deadline& deadline) const {
    pollfd ready[]{{signals_.get(), POLLIN, 0}, {output_.fd(), events, 0}};
    if (::poll(ready, 2, deadline.poll_timeout()) < 0) {
      if (errno == EINTR) return false;
      base::throw_errno(errno, "wait for the next repetition");
    }
    if ((ready[1].revents & (POLLERR | POLLHUP)) != 0) {
      base::throw_errno(EPIPE, base::ExitStatus::kIoError, "write to standard output");
    }
    return (ready[1].revents & events) != 0;
  }

  // Handles the pending signals. Returns whether the screen was restored for a stop.
  bool take_signals() {
    bool restored = false;
    while (const int signal = os::read_signal(signals_.get())) {
      redraw_ |= signal == SIGTSTP || signal == SIGWINCH;
      ended_ |= signal != SIGTSTP && signal != SIGWINCH;
      if (signal != SIGTSTP) continue;
      screen_->restore();
      restored = true;
      stop();
    }
    return restored;
  }

  // Stops the process as SIGTSTP does. Does nothing if no process could continue us, as in a
  // container's only process group.
  static void stop() {
    const sigset_t stopping = os::signal_set({SIGTSTP});
    ::pthread_sigmask(SIG_UNBLOCK, &stopping, nullptr);
    ::raise(SIGTSTP);
    ::pthread_sigmask(SIG_BLOCK, &stopping, nullptr);
  }

  const Options& options_;
  std::string dir_;
  std::string socket_;
  std::string title_;
  PatientOutput output_;
  base::UniqueFd signals_;
  std::optional<cli::Screen> screen_;
  gms::StatWatch watch_;
  bool redraw_ = false;
  bool ended_ = false;
};

}  // namespace

void watch(const Options& options, const std::string& dir, const std::string& socket) {
  if (!socket.empty()) os::check_socket_path(socket);
  Watcher(options, dir, socket).run();
}

}  // namespace fo::gms_stat
