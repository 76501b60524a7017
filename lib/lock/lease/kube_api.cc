#include "lock/lease/kube_api.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hex.h"
#include "base/text.h"
#include "base/units.h"
#include "json/peer_json.h"
#include "lock/grant.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {

using nlohmann::json;
using std::chrono::microseconds;
using std::chrono::seconds;
using std::chrono::system_clock;

constexpr std::size_t kMostResourceVersion = 256;
constexpr std::size_t kIdentityDigits = 16;

constexpr auto kMostBytes = static_cast<std::size_t>(kMostKubeAnswer);

// nullptr where there is none, which is what null means, too.
const json* find(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const json& part(const json& object, const char* key) {
  static const json kNothing = json::object();
  const json* found = find(object, key);
  if (found == nullptr) return kNothing;
  if (!found->is_object()) throw fo::json::Misfit(std::string(key) + ": expected an object");
  return *found;
}

std::string text(const json& object, const char* key) {
  const json* found = find(object, key);
  if (found == nullptr) return {};
  if (!found->is_string()) throw fo::json::Misfit(std::string(key) + ": expected a string");
  return found->get<std::string>();
}

std::optional<std::uint64_t> number(const json& object, const char* key) {
  const json* found = find(object, key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() > kMostTransitions) {
    throw fo::json::Misfit(std::string(key) + ": expected a number from 0 to 2147483647");
  }
  return found->get<std::uint64_t>();
}

KubeLease lease_of(const json& object, const LeaseName& wanted) {
  if (text(object, "kind") != "Lease" || text(object, "apiVersion") != "coordination.k8s.io/v1") {
    throw fo::json::Misfit("not a Lease of coordination.k8s.io/v1");
  }
  const json& metadata = part(object, "metadata");
  if (text(metadata, "name") != wanted.name || text(metadata, "namespace") != wanted.name_space) {
    throw fo::json::Misfit("another Lease");
  }
  KubeLease lease;
  lease.resource_version = text(metadata, "resourceVersion");
  if (lease.resource_version.empty() || lease.resource_version.size() > kMostResourceVersion) {
    throw fo::json::Misfit("resourceVersion: missing or too long");
  }
  const json& spec = part(object, "spec");
  lease.holder = text(spec, "holderIdentity");
  const std::optional<std::uint64_t> duration = number(spec, "leaseDurationSeconds");
  if (duration) lease.duration = seconds(*duration);
  lease.transitions = number(spec, "leaseTransitions").value_or(0);
  lease.acquire_time = text(spec, "acquireTime");
  lease.renew_time = text(spec, "renewTime");
  lease.object = object.dump();
  return lease;
}

void put_claim(json& spec, const KubeClaim& claim) {
  spec["holderIdentity"] = claim.holder;
  spec["leaseDurationSeconds"] = claim.duration.count();
  spec["leaseTransitions"] = claim.transitions;
  if (claim.acquired) spec["acquireTime"] = format_micro_time(*claim.acquired);
  spec["renewTime"] = format_micro_time(claim.renewed);
}

// For a query: what could mean anything in there is written as %XX.
std::string escaped(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_';
    if (plain) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

bool says_absent(std::string_view body, std::string_view kind, std::string_view name) {
  const std::optional<KubeStatus> status = decode_status(body);
  return status && status->reason == "NotFound" && status->kind == kind && status->name == name;
}

}  // namespace

std::string quoted(const LeaseName& lease) {
  return base::quoted(lease.name_space + "/" + lease.name);
}

std::string leases_path(const LeaseName& lease) {
  return "/apis/coordination.k8s.io/v1/namespaces/" + lease.name_space + "/leases";
}

std::string lease_path(const LeaseName& lease) { return leases_path(lease) + "/" + lease.name; }

std::string watch_path(const LeaseName& lease, std::string_view resource_version, seconds timeout) {
  return leases_path(lease) + "?watch=1&allowWatchBookmarks=true&fieldSelector=metadata.name%3D" +
         lease.name + "&resourceVersion=" + escaped(resource_version) +
         "&timeoutSeconds=" + std::to_string(timeout.count());
}

KubeLease decode_lease(std::string_view body, const LeaseName& lease) {
  const auto what = [&] { return "read Lease " + quoted(lease); };
  return fo::json::read_object(body, kMostBytes, what,
                               [&](const json& object) { return lease_of(object, lease); });
}

std::string encode_lease(const LeaseName& lease, const KubeClaim& claim) {
  json object{{"apiVersion", "coordination.k8s.io/v1"},
              {"kind", "Lease"},
              {"metadata", {{"name", lease.name}, {"namespace", lease.name_space}}},
              {"spec", json::object()}};
  put_claim(object["spec"], claim);
  return object.dump();
}

std::string encode_lease(const KubeLease& seen, const KubeClaim& claim) {
  json object = json::parse(seen.object);
  json& spec = object["spec"];
  put_claim(spec, claim);
  return object.dump();
}

std::optional<KubeStatus> decode_status(std::string_view body) {
  constexpr std::size_t kMost = 512;
  try {
    const json object = fo::json::parse_object(body, kMostBytes);
    if (text(object, "kind") != "Status") return std::nullopt;
    const json& details = part(object, "details");
    KubeStatus status{text(object, "message"), text(object, "reason"), text(details, "kind"),
                      text(details, "name")};
    std::replace_if(status.message.begin(), status.message.end(), base::is_control, ' ');
    if (status.message.size() > kMost) status.message.resize(kMost);
    return status;
  } catch (const fo::json::Misfit&) {
    return std::nullopt;
  }
}

bool says_no_lease(std::string_view body, const LeaseName& lease) {
  return says_absent(body, "leases", lease.name);
}

bool says_no_namespace(std::string_view body, const LeaseName& lease) {
  return says_absent(body, "namespaces", lease.name_space);
}

WatchEvent decode_watch_event(std::string_view line, const LeaseName& lease) {
  const auto what = [&] { return "watch Lease " + quoted(lease); };
  return fo::json::read_object(line, kMostBytes, what, [&](const json& event) {
    const std::string type = text(event, "type");
    if (type == "BOOKMARK") return WatchEvent{WatchEvent::Kind::kBookmark, {}};
    if (type != "ADDED" && type != "MODIFIED") return WatchEvent{};
    return WatchEvent{WatchEvent::Kind::kChanged, lease_of(part(event, "object"), lease)};
  });
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

std::string make_identity(std::string_view id, std::string_view digits) {
  return std::string(id) + "_" + std::string(digits);
}

std::string id_of_identity(std::string_view identity) {
  if (identity.size() > kIdentityDigits + 1) {
    const std::string_view end = identity.substr(identity.size() - kIdentityDigits - 1);
    if (end.front() == '_' && base::is_hex(end.substr(1))) {
      identity.remove_suffix(end.size());
    }
  }
  return id_of_lock_file(identity);
}

}  // namespace fo::lock
