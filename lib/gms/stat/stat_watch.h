// What gms-stat --watch sees: servers that come and go and change between two looks, and how that
// is told: a screen for people, a line for each change for logs and programs. Pure: what a look
// found, the clock and the size of the screen come in.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gms/stat/stat.h"

namespace fo::gms {

class StatWatch {
 public:
  using Time = std::chrono::system_clock::time_point;

  /// A server that is seen for the first time, or is not as it was a look ago.
  struct Change {
    Time at;
    StatRow row;
    /// The protocol's names of the fields that changed; "error" when the server has gone or come.
    /// Empty for the first look.
    std::vector<std::string> fields;
    /// For people: "COMMITTED -> RO, readers 0 -> 2".
    std::string text;
  };

  /// Compares what a look found with the one before. A server that is not there any more stays as
  /// one that is gone, unless it never answered.
  std::vector<Change> update(std::vector<StatRow> found, Time now);

  /// A table of all servers and the latest changes below it, within so many lines and columns. What
  /// changed at or after `marked_since` is marked, with a terminal's escape sequences. `title` is
  /// one plain line.
  [[nodiscard]] std::vector<std::string> screen(std::size_t lines, std::size_t columns,
                                                std::string_view title, Time now,
                                                Time marked_since) const;

 private:
  enum class Condition { kAnswers, kGone, kSilent };
  struct Server {
    StatRow row;
    Condition condition = Condition::kGone;
    bool has_answered = false;
    /// Since when it is in its state, or at the latest so if nobody saw it begin.
    Time since;
    bool saw_begin = false;
    /// When a field changed, by its name.
    std::map<std::string, Time, std::less<>> changed;
  };

  static Condition condition_of(const StatRow& row);
  static const char* absence_of(const Server& server);
  static std::string describe(const Server& server);
  Change take(Server& server, StatRow row, Time now);
  std::vector<std::string> table(std::size_t columns, Time now, Time marked_since) const;

  bool has_looked_ = false;
  std::vector<Server> servers_;
  /// The latest, newest first.
  std::deque<Change> history_;
};

/// "2026-11-21T05:33:00.123Z  device 0 weights  COMMITTED -> RO, readers 0 -> 2".
std::string to_text(const StatWatch::Change& change);
/// The server's state as to_json(StatRow) has it, with "time" and "changed".
std::string to_json(const StatWatch::Change& change);

}  // namespace fo::gms
