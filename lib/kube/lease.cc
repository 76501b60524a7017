#include "kube/lease.h"

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "json/object.h"
#include "kube/reading.h"
#include "text/time_text.h"

namespace fo::kube {
namespace {

using fo::json::object_in;
using fo::json::text_in;
using nlohmann::json;
using std::chrono::microseconds;
using std::chrono::seconds;
using std::chrono::system_clock;

constexpr base::ByteCount kMaxLeaseBytes = base::kMiB;

void put_claim(json& spec, const Claim& claim) {
  spec["holderIdentity"] = claim.holder;
  spec["leaseDurationSeconds"] = claim.duration.count();
  spec["leaseTransitions"] = claim.transitions;
  if (claim.acquired) spec["acquireTime"] = format_micro_time(*claim.acquired);
  spec["renewTime"] = format_micro_time(claim.renewed);
}

}  // namespace

Collection leases_in(const std::string& name_space) {
  return {{"coordination.k8s.io", "v1", "leases", "Lease"}, name_space};
}

Lease decode_lease(std::string_view body, const Collection& leases, std::string_view name) {
  const std::string what = "read " + describe(leases, name);
  const auto read = [&](const json& object) {
    Object whole = decode_object(object, leases.resource);
    if (whole.name != name || whole.name_space != leases.name_space) {
      throw fo::json::Misfit("a different Lease");
    }
    const json& spec = object_in(object, "spec");
    Lease lease;
    lease.resource_version = std::move(whole.resource_version);
    lease.holder = text_in(spec, "holderIdentity");
    const std::optional<std::uint64_t> duration = number_in(spec, "leaseDurationSeconds");
    if (duration) lease.duration = seconds(*duration);
    lease.transitions = number_in(spec, "leaseTransitions").value_or(0);
    lease.acquire_time = text_in(spec, "acquireTime");
    lease.renew_time = text_in(spec, "renewTime");
    lease.object = std::move(whole.text);
    return lease;
  };
  return fo::json::read_object(
      body, kMaxLeaseBytes, [&] { return what; }, read);
}

std::string encode_lease(const Collection& leases, const std::string& name, const Claim& claim) {
  json object{{"apiVersion", "coordination.k8s.io/v1"},
              {"kind", "Lease"},
              {"metadata", {{"name", name}, {"namespace", leases.name_space}}},
              {"spec", json::object()}};
  put_claim(object["spec"], claim);
  return object.dump();
}

std::string encode_lease(const Lease& seen, const Claim& claim) {
  // decode_lease wrote this text, so that it is valid JSON.
  json object = json::parse(seen.object);
  json& spec = object["spec"];
  put_claim(spec, claim);
  return object.dump();
}

std::string format_micro_time(system_clock::time_point time) {
  const auto second = std::chrono::floor<seconds>(time);
  const auto micros = std::chrono::floor<microseconds>(time - second).count();
  const std::string digits = std::to_string(1'000'000 + micros);
  return text::format_time(second).substr(0, 19) + "." + digits.substr(1) + "Z";
}

std::optional<system_clock::time_point> parse_micro_time(std::string_view text) {
  constexpr std::size_t kSecondsEnd = 19;
  if (text.size() <= kSecondsEnd || text.back() != 'Z') return std::nullopt;
  const auto second = text::parse_time(std::string(text.substr(0, kSecondsEnd)) + ".000Z");
  std::string_view fraction = text.substr(kSecondsEnd, text.size() - kSecondsEnd - 1);
  if (!second || fraction.empty()) return second;
  fraction.remove_prefix(1);
  if (text[kSecondsEnd] != '.' || fraction.empty() || fraction.size() > 9) return std::nullopt;
  std::string digits(fraction);
  digits.resize(9, '0');
  const std::optional<std::uint64_t> nanoseconds = base::parse_uint(digits);
  if (!nanoseconds) return std::nullopt;
  return *second + std::chrono::nanoseconds(*nanoseconds);
}

}  // namespace fo::kube
