// Requests that may kill the engines that get them. A request that was in flight at two deaths of
// engines, and got at most one token between them, is not sent to a third one, and its body is
// refused for some time: one that kills its engine at some token does so at the same one again,
// while a long answer may lose several engines that died of something else. After the first death,
// the requests that were in flight together are suspects, of which each worker has at most one that
// has brought no token there: the next death then leaves few of them. Pure: time is an argument.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "route/queue/choice.h"

namespace fo::route {

/// The requests that are in the router, and the deaths at which each was in flight. The first one
/// makes it a suspect until it brings a token on another worker; the second one makes it poison.
class Suspects {
 public:
  /// The deaths that make a request poison.
  static constexpr unsigned kDeaths = 2;

  /// The request is sent to a worker. Its number is unique.
  void begin(std::uint64_t request, WorkerNumber worker);

  // These return true if the request's worker can get another suspect now.

  /// The request has brought a token on its worker.
  bool on_token(std::uint64_t request);
  /// It has brought more tokens on its worker: its deaths so far do not count any more.
  void on_progress(std::uint64_t request);
  /// It is not with its worker any more, but may be sent to another one.
  bool end_attempt(std::uint64_t request);
  /// It has left the router.
  bool remove(std::uint64_t request);

  /// The worker's engine has died: a death of each request that is with it, none of which is with
  /// it from now on. A standby at the same address may have the same number.
  void on_death(WorkerNumber worker);

  [[nodiscard]] bool is_suspect(std::uint64_t request) const { return suspects_.contains(request); }
  /// It must not be sent to another worker.
  [[nodiscard]] bool is_poison(std::uint64_t request) const;
  /// The workers that must not get another suspect now.
  [[nodiscard]] std::vector<WorkerNumber> occupied() const;

 private:
  struct Request {
    std::optional<WorkerNumber> worker;
    unsigned deaths = 0;
  };
  std::map<std::uint64_t, Request> requests_;
  std::set<std::uint64_t> suspects_;
};

/// The bodies of poison, by their hashes.
class PoisonBodies {
 public:
  static constexpr base::Duration kTime = std::chrono::minutes(10);

  /// Remembers at most `max_bodies`, and forgets the oldest first.
  explicit PoisonBodies(std::size_t max_bodies = 4096) : max_bodies_(max_bodies) {}

  /// `key` is the hash of the client's key, since another client's request is not the same one.
  void add(std::string_view key, std::string_view body, base::Duration now);
  /// Whether it was added in the last kTime.
  [[nodiscard]] bool contains(std::string_view key, std::string_view body,
                              base::Duration now) const;

 private:
  std::size_t max_bodies_;
  /// When each was added.
  std::map<std::string, base::Duration> added_;
};

}  // namespace fo::route
