// Kubernetes' API as far as a Lease of coordination.k8s.io/v1 needs it, as text: what is asked, and
// what the answers say. Pure: no requests, no clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/strong.h"

namespace fo::lock {

/// The longest answer that is read.
inline constexpr base::ByteCount kMostKubeAnswer = base::kMiB;
/// leaseTransitions is a number of 32 bits.
inline constexpr std::uint64_t kMostTransitions = 0x7fffffff;

/// Which Lease. Both parts as parse_lock_uri takes them.
struct LeaseName {
  std::string name_space;
  std::string name;
};

/// "'namespace/name'", for messages.
std::string quoted(const LeaseName& lease);

/// Where Leases are created.
std::string leases_path(const LeaseName& lease);
/// Where the one is read and replaced.
std::string lease_path(const LeaseName& lease);
/// Where its changes since `resource_version` are told, for up to `timeout`.
std::string watch_path(const LeaseName& lease, std::string_view resource_version,
                       std::chrono::seconds timeout);

/// A Lease as an API server has it.
struct KubeLease {
  std::string resource_version;
  /// Empty: nobody holds it.
  std::string holder;
  /// For how long the holder has it after each renewal; nullopt where the Lease does not say.
  std::optional<std::chrono::seconds> duration;
  std::uint64_t transitions = 0;
  /// As they are written; empty: not at all.
  std::string acquire_time;
  std::string renew_time;
  /// All of it.
  std::string object;
};

/// Throws Error(kProtocol) for what is not the Lease that was asked for.
KubeLease decode_lease(std::string_view body, const LeaseName& lease);

/// What we write into a Lease.
struct KubeClaim {
  /// Empty: it is given up.
  std::string holder;
  std::chrono::seconds duration{};
  /// From 1 to kMostTransitions.
  std::uint64_t transitions = 0;
  /// When this grant began; nullopt: what is there stays.
  std::optional<std::chrono::system_clock::time_point> acquired;
  std::chrono::system_clock::time_point renewed;
};

/// A new Lease.
std::string encode_lease(const LeaseName& lease, const KubeClaim& claim);
/// The Lease as it was seen, with this claim: everything else in it is kept, above all its resource
/// version, by which an API server refuses to replace what has changed meanwhile.
std::string encode_lease(const KubeLease& seen, const KubeClaim& claim);

/// What an API server answers instead of what was asked for. Whoever stands before it and answers
/// on its own, a load balancer above all, answers with something else.
struct KubeStatus {
  /// In one line.
  std::string message;
  /// "NotFound", "Conflict" and the like; empty: none.
  std::string reason;
  /// What it is about, as "leases" and its name; empty: not said.
  std::string kind;
  std::string name;
};
/// nullopt for an answer that is no Status.
std::optional<KubeStatus> decode_status(std::string_view body);
/// Whether an answer says that there is no such Lease.
bool says_no_lease(std::string_view body, const LeaseName& lease);
/// Whether it says that there is no such namespace.
bool says_no_namespace(std::string_view body, const LeaseName& lease);

/// What a line of a watch says.
struct WatchEvent {
  enum class Kind {
    kBookmark,  // that it is still there
    kChanged,   // what the Lease is now
    kLookAnew,  // that it was deleted, or that the watch can't go on
  };
  Kind kind = Kind::kLookAnew;
  /// Of kChanged.
  KubeLease lease;
};
/// Throws Error(kProtocol).
WatchEvent decode_watch_event(std::string_view line, const LeaseName& lease);

/// RFC 3339 in UTC with six digits behind the second: "2026-11-21T05:33:00.123456Z".
std::string format_micro_time(std::chrono::system_clock::time_point time);
/// The same with any number of digits up to nine; nullopt for anything else.
std::optional<std::chrono::system_clock::time_point> parse_micro_time(std::string_view text);

/// The id in a Lease: with 16 random hexadecimal digits behind it, so that an engine that was
/// started anew does not take itself for the holder.
std::string make_identity(std::string_view id, std::string_view digits);
/// The id without these; another's identity whole. Without control characters.
std::string id_of_identity(std::string_view identity);

}  // namespace fo::lock
