// Requests that may kill the engines that get them. A request that was in flight at two deaths of
// engines, and got at most one token between them, is not sent to a third one, and its body is
// refused for some time. A request that kills its engine at some token does so at the same token
// again; a long answer, in contrast, may lose several engines that die of other causes. After the
// first death, the requests that were in flight together are suspects. Each worker gets at most one
// suspect that has brought no token there, so that few suspects are left after the next death.
//
// A body that many clients send, such as that of a health probe, may be in flight at two deaths
// that have another cause, and no token of an answer in one piece arrives before its end. So a body
// is acquitted when other requests with it end well. Pure: time is an argument.
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

struct PoisonSettings {
  /// The deaths that make a request poison.
  std::uint64_t deaths = 2;
  /// The time for which its body is refused.
  base::Duration time = std::chrono::minutes(10);
};

/// The requests that are in the router, and the deaths at which each was in flight. The first death
/// makes a request a suspect until it brings a token on another worker; `PoisonSettings::deaths` of
/// them make it poison.
class Suspects {
 public:
  explicit Suspects(const PoisonSettings& settings = {}) : settings_(settings) {}
  void set_settings(const PoisonSettings& settings) { settings_ = settings; }

  /// A suspect will be sent to a worker, which gets no other one meanwhile.
  void assign(std::uint64_t suspect, WorkerNumber worker);
  /// The request is sent to a worker. Its number is unique.
  void begin(std::uint64_t request, WorkerNumber worker);

  // on_token(), end_attempt() and remove() return true if the request's worker can get another
  // suspect now.

  /// The request has brought a token on its worker.
  bool on_token(std::uint64_t request);
  /// The request has brought more tokens on its worker, or its body is acquitted: its deaths so far
  /// do not count any more.
  void on_progress(std::uint64_t request);
  /// The request is not with its worker any more, but may be sent to another one.
  bool end_attempt(std::uint64_t request);
  /// The request has left the router.
  bool remove(std::uint64_t request);

  /// The worker's engine has died, which counts as a death for each request that was with it. None
  /// of them is with the worker after this call. A standby at its address may have the same number.
  void on_death(WorkerNumber worker);

  [[nodiscard]] bool is_suspect(std::uint64_t request) const { return suspects_.contains(request); }
  /// The number of deaths that count.
  [[nodiscard]] unsigned deaths(std::uint64_t request) const;
  /// True if the request must not be sent to another worker, unless its body is acquitted.
  [[nodiscard]] bool is_poison(std::uint64_t request) const;
  /// The workers that must not get another suspect now.
  [[nodiscard]] std::vector<WorkerNumber> occupied() const;

 private:
  struct Request {
    std::optional<WorkerNumber> worker;
    bool is_sent = false;
    unsigned deaths = 0;
  };
  PoisonSettings settings_;
  std::map<std::uint64_t, Request> requests_;
  std::set<std::uint64_t> suspects_;
};

/// The bodies of poison, and those of requests that may be poison, by their hashes.
class PoisonBodies {
 private:
  struct Entry {
    /// When the body was refused; nullopt if it is not refused.
    std::optional<base::Duration> refused_at;
    std::uint64_t watches = 0;
    /// The number of requests that ended well, and that number when the body was refused.
    std::uint64_t ended_well = 0;
    std::uint64_t ended_well_before = 0;
  };
  using Entries = std::map<std::string, Entry>;

 public:
  /// The number of requests that must end well to acquit their body: one more than the deaths that
  /// make a request poison by default.
  static constexpr std::uint64_t kAcquittals = PoisonSettings{}.deaths + 1;

  /// Remembers at most `max_bodies` that are refused, and forgets the oldest first.
  explicit PoisonBodies(std::size_t max_bodies = 4096) : max_bodies_(max_bodies) {}
  void set_settings(const PoisonSettings& settings) { settings_ = settings; }

  /// Counts, from a request's first death on, the other requests with its body that end well.
  class Watch {
   public:
    /// `bodies` must outlive this object. For `key` see add().
    Watch(PoisonBodies& bodies, std::string_view key, std::string_view body);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    [[nodiscard]] bool is_acquitted() const {
      return entry_->second.ended_well >= began_at_ + kAcquittals;
    }

   private:
    PoisonBodies& bodies_;
    const Entries::iterator entry_;
    const std::uint64_t began_at_;
  };

  /// Refuses a body. `key` is the hash of the client's key, since another client's request is not
  /// the same one.
  void add(std::string_view key, std::string_view body, base::Duration now);
  /// A request with this body has ended well. If the body is refused, the request was in flight
  /// when that happened.
  void on_success(std::string_view key, std::string_view body);
  /// True if the body was added in the last PoisonSettings::time, and was not acquitted since.
  [[nodiscard]] bool contains(std::string_view key, std::string_view body,
                              base::Duration now) const;

  /// For the next router: the refused bodies, by their hashes, and how long ago each was refused.
  using Ages = std::map<std::string, std::chrono::milliseconds>;
  [[nodiscard]] Ages ages(base::Duration now) const;
  /// Refuses these bodies of another router.
  void add(const Ages& ages, base::Duration now);

 private:
  void permit(Entries::iterator entry);

  std::size_t max_bodies_;
  PoisonSettings settings_;
  Entries entries_;
};

}  // namespace fo::route
