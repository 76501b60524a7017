// A Lease of coordination.k8s.io/v1 as text; pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kube/api.h"

namespace fo::kube {

/// leaseTransitions is a number of 32 bits.
inline constexpr std::uint64_t kMaxTransitions = 0x7fffffff;

/// Leases in a namespace.
Collection leases_in(const std::string& name_space);

/// As an API server has it.
struct Lease {
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

/// Throws Error(kProtocol) for what is not the Lease `name` of `leases`, or longer than 1 MiB.
Lease decode_lease(std::string_view body, const Collection& leases, std::string_view name);

/// What is written into a Lease.
struct Claim {
  /// Empty: it is given up.
  std::string holder;
  std::chrono::seconds duration{};
  /// From 1 to kMaxTransitions.
  std::uint64_t transitions = 0;
  /// When this grant began; nullopt: what is there stays.
  std::optional<std::chrono::system_clock::time_point> acquired;
  std::chrono::system_clock::time_point renewed;
};

/// A new Lease.
std::string encode_lease(const Collection& leases, const std::string& name, const Claim& claim);
/// The Lease as it was seen, with this claim: everything else in it is kept, above all its resource
/// version, by which an API server refuses to replace what has changed meanwhile.
std::string encode_lease(const Lease& seen, const Claim& claim);

/// RFC 3339 in UTC with six digits behind the second: "2026-11-21T05:33:00.123456Z".
std::string format_micro_time(std::chrono::system_clock::time_point time);
/// The same with any number of digits up to nine; nullopt for anything else.
std::optional<std::chrono::system_clock::time_point> parse_micro_time(std::string_view text);

}  // namespace fo::kube
