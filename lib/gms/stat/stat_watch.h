// The data of gms-stat --watch: servers that appear, disappear and change between two queries, as a
// screen, and as a line per change for logs and programs. Pure: the results of queries, the clock
// and the size of the screen are arguments.
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

  /// A new server, or one that changed since the last query.
  struct Change {
    Time at;
    StatRow row;
    /// The protocol's names of the changed fields; "error" if the server disappeared or appeared.
    /// Empty for the first query.
    std::vector<std::string> fields;
    /// For display: "COMMITTED -> RO, readers 0 -> 2".
    std::string text;
  };

  /// Compares the result of a query with the previous one. A server that disappeared is kept as
  /// such, unless it never answered.
  std::vector<Change> update(std::vector<StatRow> found, Time now);

  /// A table of all servers with the latest changes below it, within `lines` and `columns`. Changes
  /// at or after `marked_since` are marked with escape sequences of a terminal; colours are used
  /// if `has_colors`. `title` is one plain line.
  [[nodiscard]] std::vector<std::string> screen(std::size_t lines, std::size_t columns,
                                                std::string_view title, Time now,
                                                Time marked_since, bool has_colors) const;

 private:
  enum class Condition { kAnswers, kGone, kSilent };
  struct Server {
    StatRow row;
    Condition condition = Condition::kGone;
    bool has_answered = false;
    /// When its state began, or the first query that saw it.
    Time since;
    bool saw_begin = false;
    /// When a field last changed, by name.
    std::map<std::string, Time, std::less<>> changed;
  };

  static Condition condition_of(const StatRow& row);
  static const char* absence_of(const Server& server);
  static std::string describe(const Server& server);
  Change take(Server& server, StatRow row, Time now);
  std::vector<std::string> table(std::size_t columns, Time now, Time marked_since,
                                 bool has_colors) const;

  bool has_looked_ = false;
  std::vector<Server> servers_;
  /// The latest, newest first.
  std::deque<Change> history_;
};

/// "2026-11-21T05:33:00.123Z  device 0 weights  COMMITTED -> RO, readers 0 -> 2".
std::string to_text(const StatWatch::Change& change);
/// The server's state as in to_json(StatRow), with "time" and "changed".
std::string to_json(const StatWatch::Change& change);

}  // namespace fo::gms
