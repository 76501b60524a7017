#include "gms/stat/stat_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "text/table.h"
#include "text/time_text.h"

namespace fo::gms {
namespace {

using nlohmann::json;

// More changes than a screen has lines.
constexpr std::size_t kHistory = 256;
// Maximum number of disconnected servers that are remembered.
constexpr std::size_t kGoneServers = 256;

constexpr std::string_view kPlain = "\x1b[0m";
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kMarked = "\x1b[7m";
constexpr std::string_view kAlarm = "\x1b[31m";

// A line of styled pieces that is never wider than the screen.
class Line {
 public:
  explicit Line(std::size_t columns) : left_(columns) {}
  void add(std::string_view text, std::string_view style = {}) {
    const bool is_cut = text.size() > left_;
    text = text.substr(0, left_);
    left_ -= text.size();
    // Does not cut inside a character.
    while (is_cut && !text.empty() && (static_cast<unsigned char>(text.back()) & 0x80U) != 0) {
      text.remove_suffix(1);
    }
    if (text.empty()) return;
    text_ += style;
    text_ += text;
    if (!style.empty()) text_ += kPlain;
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::size_t left_;
  std::string text_;
};

// The label of a row for display.
std::string label(const FoundSocket& socket) {
  if (!socket.device) return text::shown(socket.path);
  return fmt::format("device {} {}", socket.device->value(), text::shown(socket.tag));
}

auto order_of(const FoundSocket& socket) {
  constexpr base::DeviceOrdinal kLast(std::numeric_limits<int>::max());
  return std::make_tuple(socket.device.value_or(kLast), socket.tag, socket.path);
}

std::string short_hash(const LayoutHash& hash) {
  return hash.empty() ? "none" : text::shown(std::string_view(hash.value()).substr(0, kShortHash));
}

// The fields of a state as text, by name. The optional sizes change with the others.
std::map<std::string, std::string> fields_of(const GetRuntimeStateResponse& state) {
  std::map<std::string, std::string> fields;
  GetRuntimeStateResponse::each_field(state, [&](const char* name, const auto& value) {
    if constexpr (requires { value.has_value(); }) {
      return;
    } else if constexpr (requires { value.value(); }) {
      fields.emplace(name, value.value());
    } else {
      fields.emplace(name, fmt::format("{}", value));
    }
  });
  return fields;
}

std::string state_text(const GetRuntimeStateResponse& state) {
  return fmt::format("{}, readers {}, waiting writers {}, allocations {}, layout {}",
                     text::shown(state.state), state.ro_session_count, state.waiting_writers,
                     state.allocation_count, short_hash(state.memory_layout_hash));
}

std::string difference_text(const GetRuntimeStateResponse& before,
                            const GetRuntimeStateResponse& after) {
  std::vector<std::string> parts;
  if (before.state != after.state) {
    parts.push_back(text::shown(before.state) + " -> " + text::shown(after.state));
  }
  const auto add_number = [&](const char* name, std::int64_t from, std::int64_t to) {
    if (from != to) parts.push_back(fmt::format("{} {} -> {}", name, from, to));
  };
  add_number("readers", before.ro_session_count, after.ro_session_count);
  add_number("waiting writers", before.waiting_writers, after.waiting_writers);
  add_number("allocations", before.allocation_count, after.allocation_count);
  if (before.memory_layout_hash != after.memory_layout_hash) {
    parts.push_back("layout " + short_hash(before.memory_layout_hash) + " -> " +
                    short_hash(after.memory_layout_hash));
  }
  // The remaining fields follow from the state if the server is consistent.
  if (parts.empty()) parts.emplace_back("committed or ready changed");
  return fmt::format("{}", fmt::join(parts, ", "));
}

// "7s", "12m", "3h", "2d".
std::string age_text(std::chrono::system_clock::duration age) {
  const auto seconds =
      std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(age).count());
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m", seconds / 60);
  if (seconds < 86400) return fmt::format("{}h", seconds / 3600);
  return fmt::format("{}d", seconds / 86400);
}

// The local wall clock.
std::string clock_text(StatWatch::Time time) {
  const std::time_t count = std::chrono::system_clock::to_time_t(time);
  std::tm local{};
  ::localtime_r(&count, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

}  // namespace

StatWatch::Condition StatWatch::condition_of(const StatRow& row) {
  if (row.stat) return Condition::kAnswers;
  return row.status == base::ExitStatus::kUnavailable ? Condition::kGone : Condition::kSilent;
}

const char* StatWatch::absence_of(const Server& server) {
  if (server.condition == Condition::kSilent) return "no answer";
  return server.has_answered ? "gone" : "missing";
}

std::string StatWatch::describe(const Server& server) {
  if (server.row.stat) return state_text(server.row.stat->state);
  return std::string(absence_of(server)) + ": " + text::shown_message(server.row.error);
}

StatWatch::Change StatWatch::take(Server& server, StatRow row, Time now) {
  Change change;
  change.at = now;
  const Condition condition = condition_of(row);
  const bool same_condition = condition == server.condition;
  if (same_condition && condition == Condition::kAnswers) {
    const GetRuntimeStateResponse& before = server.row.stat->state;
    const GetRuntimeStateResponse& after = row.stat->state;
    const auto old = fields_of(before);
    for (const auto& [name, value] : fields_of(after)) {
      if (old.at(name) != value) change.fields.push_back(name);
    }
    if (!change.fields.empty()) change.text = difference_text(before, after);
  } else if (!same_condition) {
    change.fields.emplace_back("error");
  }
  if (!same_condition || (row.stat && row.stat->state.state != server.row.stat->state.state)) {
    server.since = now;
    server.saw_begin = true;
  }
  // The first reason of an unreachable server is kept, because it tells what happened.
  if (!same_condition || condition == Condition::kAnswers) server.row = std::move(row);
  const bool is_back = !same_condition && condition == Condition::kAnswers;
  server.condition = condition;
  if (!same_condition) {
    change.text = (is_back ? server.has_answered ? "back: " : "here: " : "") + describe(server);
  }
  server.has_answered |= condition == Condition::kAnswers;
  if (!same_condition) server.changed.clear();
  for (const std::string& field : change.fields) server.changed[field] = now;
  change.row = server.row;
  return change;
}

std::vector<StatWatch::Change> StatWatch::update(std::vector<StatRow> found, Time now) {
  std::map<std::string, StatRow> rows;
  for (StatRow& row : found) rows.emplace(row.socket.path, std::move(row));
  // A socket that never was a server's is removed without a change.
  std::erase_if(servers_, [&](const Server& server) {
    return !server.has_answered && !rows.contains(server.row.socket.path);
  });
  std::vector<Change> changes;
  for (Server& server : servers_) {
    StatRow next;
    if (auto row = rows.extract(server.row.socket.path)) {
      next = std::move(row.mapped());
    } else {
      next.socket = server.row.socket;
      next.error = "its socket was removed";
      next.status = base::ExitStatus::kUnavailable;
    }
    Change change = take(server, std::move(next), now);
    if (!change.fields.empty()) changes.push_back(std::move(change));
  }
  for (auto& [path, row] : rows) {
    Server& server = servers_.emplace_back();
    server.condition = condition_of(row);
    server.has_answered = row.stat.has_value();
    server.since = now;
    server.row = std::move(row);
    changes.push_back({now, server.row, {}, describe(server)});
  }
  const auto in_order = [](const auto& one, const auto& other) {
    return order_of(one.row.socket) < order_of(other.row.socket);
  };
  std::sort(servers_.begin(), servers_.end(), in_order);
  std::sort(changes.begin(), changes.end(), in_order);
  std::size_t gone = 0;
  std::erase_if(servers_, [&](const Server& server) {
    return server.condition == Condition::kGone && ++gone > kGoneServers;
  });
  // The servers found by the first query are not changes.
  if (has_looked_) history_.insert(history_.begin(), changes.rbegin(), changes.rend());
  has_looked_ = true;
  if (history_.size() > kHistory) history_.resize(kHistory);
  return changes;
}

std::vector<std::string> StatWatch::table(std::size_t columns, Time now, Time marked_since,
                                          bool has_colors) const {
  // The field that a column shows; empty for a constant column.
  constexpr std::array<std::string_view, 11> kFields{"",
                                                     "",
                                                     "state",
                                                     "",
                                                     "has_rw_session",
                                                     "waiting_writers",
                                                     "ro_session_count",
                                                     "allocation_count",
                                                     "",
                                                     "memory_layout_hash",
                                                     ""};
  text::TextTable cells("rllrrrrrrll");
  // The column is as wide as the widest possible value, so that columns do not move.
  cells.add({"device", "tag", fmt::format("{:<16}", "state"), " for", "writer", "waiting",
             "readers", "allocations", " allocated",
             fmt::format("{:<{}}", "layout hash", kShortHash), "socket"});
  for (const Server& server : servers_) {
    std::vector<std::string> row = cells_of(server.row, absence_of(server));
    row.insert(row.begin() + 3, (server.saw_begin ? "" : ">") + age_text(now - server.since));
    cells.add(std::move(row));
  }
  std::vector<std::string> lines;
  const auto rows = cells.padded();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Line line(columns);
    const Server* server = i == 0 ? nullptr : &servers_[i - 1];
    const auto is_marked = [&](std::string_view field) {
      const auto changed = server->changed.find(field);
      return changed != server->changed.end() && changed->second >= marked_since;
    };
    for (std::size_t column = 0; column < rows[i].size(); ++column) {
      if (column > 0) line.add("  ");
      std::string_view style;
      if (server == nullptr) {
        style = kBold;
      } else if (!kFields[column].empty() &&
                 (is_marked(kFields[column]) || (column == 2 && is_marked("error")))) {
        style = kMarked;
      } else if (column == 2 && !server->row.stat) {
        style = has_colors ? kAlarm : "";
      }
      line.add(rows[i][column], style);
    }
    lines.push_back(line.take());
  }
  return lines;
}

std::vector<std::string> StatWatch::screen(std::size_t lines, std::size_t columns,
                                           std::string_view title, Time now, Time marked_since,
                                           bool has_colors) const {
  std::vector<std::string> out;
  Line head(columns);
  const std::string clock = clock_text(now);
  const std::size_t room = columns > clock.size() ? columns - clock.size() : 0;
  head.add(fmt::format("{:<{}}{}", text::shown(title).substr(0, room), room, clock));
  out.push_back(head.take());
  out.emplace_back();
  std::vector<std::string> rows = table(columns, now, marked_since, has_colors);
  const std::size_t fit = lines > out.size() ? lines - out.size() : 0;
  if (rows.size() > fit && fit > 0) {
    const std::size_t hidden = rows.size() - fit + 1;
    rows.resize(fit - 1);
    Line more(columns);
    more.add(fmt::format("... and {} more", hidden));
    rows.push_back(more.take());
  }
  std::move(rows.begin(), rows.end(), std::back_inserter(out));
  if (!history_.empty() && out.size() + 2 < lines) {
    out.emplace_back();
    for (const Change& change : history_) {
      if (out.size() >= lines) break;
      Line line(columns);
      line.add(clock_text(change.at) + "  " + label(change.row.socket) + "  ");
      line.add(change.text, change.at >= marked_since ? kBold : "");
      out.push_back(line.take());
    }
  }
  out.resize(std::min(out.size(), lines));
  return out;
}

std::string to_text(const StatWatch::Change& change) {
  return text::format_time(change.at) + "  " + label(change.row.socket) + "  " + change.text;
}

std::string to_json(const StatWatch::Change& change) {
  json out = json::parse(to_json(change.row));
  out["time"] = text::format_time(change.at);
  out["changed"] = change.fields;
  return out.dump();
}

}  // namespace fo::gms
