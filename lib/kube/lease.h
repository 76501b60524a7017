// A Lease of coordination.k8s.io/v1 as text. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kube/api.h"

namespace fo::kube {

/// leaseTransitions is a 32-bit number.
inline constexpr std::uint64_t kMaxTransitions = 0x7fffffff;

/// The Leases in a namespace.
Collection leases_in(const std::string& name_space);

/// A Lease as an API server stores it.
struct Lease {
  std::string resource_version;
  /// Empty: no holder.
  std::string holder;
  /// The validity after each renewal; nullopt if the Lease does not contain it.
  std::optional<std::chrono::seconds> duration;
  std::uint64_t transitions = 0;
  /// The times as text; empty if missing.
  std::string acquire_time;
  std::string renew_time;
  /// The whole object, as JSON.
  std::string object;
};

/// Throws Error(kProtocol) unless `body` is the Lease `name` of `leases`, at most 1 MiB long.
Lease decode_lease(std::string_view body, const Collection& leases, std::string_view name);

/// The values to write into a Lease.
struct Claim {
  /// Empty: the Lease is released.
  std::string holder;
  std::chrono::seconds duration{};
  /// Number of transitions, from 1 to kMaxTransitions.
  std::uint64_t transitions = 0;
  /// The beginning of this grant; nullopt keeps the stored time.
  std::optional<std::chrono::system_clock::time_point> acquired;
  std::chrono::system_clock::time_point renewed;
};

/// A new Lease.
std::string encode_lease(const Collection& leases, const std::string& name, const Claim& claim);
/// The Lease `seen` with this claim. All other members are kept. Because of the resource version
/// among them, an API server refuses to replace a Lease that has changed meanwhile.
std::string encode_lease(const Lease& seen, const Claim& claim);

/// RFC 3339 in UTC with six decimals: "2026-11-21T05:33:00.123456Z".
std::string format_micro_time(std::chrono::system_clock::time_point time);
/// Parses this form with up to nine decimals, or none; nullopt for any other text.
std::optional<std::chrono::system_clock::time_point> parse_micro_time(std::string_view text);

}  // namespace fo::kube
