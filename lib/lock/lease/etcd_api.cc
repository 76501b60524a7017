#include "lock/lease/etcd_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "json/dump.h"
#include "json/peer_json.h"
#include "lock/grant.h"
#include "text/base64.h"
#include "text/time_text.h"

namespace fo::lock::etcd {
namespace {

using base::Error;
using base::ExitStatus;
using nlohmann::json;

constexpr std::uint64_t kMostInt64 = std::numeric_limits<std::int64_t>::max();
constexpr std::chrono::seconds kLongestTtl = std::chrono::hours(24);
constexpr std::size_t kMostTokenBytes = std::size_t{16} * 1024;
constexpr std::size_t kMostValueBytes = 4096;

std::string number_text(std::uint64_t number) { return std::to_string(number); }

std::string prefix_of(const std::string& key) { return key + "/"; }

// '0' comes after '/'.
std::string prefix_end_of(const std::string& key) { return key + "0"; }

json value_of(const Contender& who) {
  json value{{"holder", who.id}, {"host", who.host}, {"pid", who.pid}};
  if (!who.granted_at.empty()) value["granted_at"] = who.granted_at;
  return value;
}

json put(const Place& place, const Contender& who) {
  return {{"request_put",
           {{"key", text::encode_base64(place.name())},
            {"value", text::encode_base64(fo::json::dump(value_of(who)))},
            {"lease", number_text(place.lease)}}}};
}

json was_created(const Place& place, Revision revision) {
  return {{"key", text::encode_base64(place.name())},
          {"target", "CREATE"},
          {"result", "EQUAL"},
          {"create_revision", number_text(revision)}};
}

json range_of_own(const Place& place) {
  return {{"request_range", {{"key", text::encode_base64(place.name())}, {"keys_only", true}}}};
}

Request transaction(json compare, json success, json failure) {
  const json body{{"compare", std::move(compare)},
                  {"success", std::move(success)},
                  {"failure", std::move(failure)}};
  return {"/v3/kv/txn", fo::json::dump(body)};
}

// A member that is left out has the value that is `absent`.
const json& member(const json& object, const char* key, const json& absent) {
  if (!object.is_object()) throw fo::json::Misfit("expected an object");
  const auto found = object.find(key);
  return found == object.end() ? absent : *found;
}

const json& object_in(const json& object, const char* key) {
  static const json empty = json::object();
  const json& value = member(object, key, empty);
  if (!value.is_object()) throw fo::json::Misfit(std::string("missing object ") + key);
  return value;
}

const json& list_in(const json& object, const char* key) {
  static const json empty = json::array();
  const json& value = member(object, key, empty);
  if (!value.is_array()) throw fo::json::Misfit(std::string("missing list ") + key);
  return value;
}

std::string text_in(const json& object, const char* key) {
  static const json empty = "";
  const json& value = member(object, key, empty);
  if (!value.is_string()) throw fo::json::Misfit(std::string("missing string ") + key);
  return value.get<std::string>();
}

bool flag_in(const json& object, const char* key) {
  static const json absent = false;
  const json& value = member(object, key, absent);
  if (!value.is_boolean()) throw fo::json::Misfit(std::string("missing boolean ") + key);
  return value.get<bool>();
}

// An int64 that is not negative.
std::uint64_t number_in(const json& object, const char* key) {
  const std::string text = text_in(object, key);
  if (text.empty()) return 0;
  const auto number = base::parse_uint(text);
  if (!number || *number > kMostInt64) throw fo::json::Misfit(std::string("missing number ") + key);
  return *number;
}

std::uint64_t positive_in(const json& object, const char* key) {
  const std::uint64_t number = number_in(object, key);
  if (number == 0) throw fo::json::Misfit(std::string("missing number ") + key);
  return number;
}

std::string bytes_in(const json& object, const char* key) {
  auto bytes = text::decode_base64(text_in(object, key));
  if (!bytes) throw fo::json::Misfit(std::string("missing base64 data ") + key);
  return *std::move(bytes);
}

base::Duration ttl_in(const json& object) {
  const std::uint64_t seconds = number_in(object, "TTL");
  if (seconds > static_cast<std::uint64_t>(kLongestTtl.count()))
    throw fo::json::Misfit("TTL out of range");
  return std::chrono::seconds(seconds);
}

Revision revision_in(const json& answer) {
  return positive_in(object_in(answer, "header"), "revision");
}

// The range that is number `index` of what a transaction answered.
const json& range_in(const json& answer, std::size_t index) {
  const json& responses = list_in(answer, "responses");
  if (index >= responses.size()) throw fo::json::Misfit("too few responses");
  return list_in(object_in(responses[index], "response_range"), "kvs");
}

template <typename Read>
auto decode(std::string_view answer, const Read& read) {
  const auto what = [answer] { return "read etcd's answer " + base::quoted(answer); };
  return fo::json::read_object(answer, static_cast<std::size_t>(kMostAnswerBytes), what, read);
}

// A queue may have keys of others, with anything in them.
Contender read_contender(const std::string& value) {
  try {
    const json object = fo::json::parse_object(value, kMostValueBytes);
    Contender who;
    who.id = text_in(object, "holder");
    check_lock_id(who.id);
    who.host = text_in(object, "host");
    who.granted_at = text_in(object, "granted_at");
    if (!who.granted_at.empty() && !text::parse_time(who.granted_at)) return {};
    const auto pid = object.find("pid");
    if (pid != object.end() && pid->is_number_unsigned()) who.pid = pid->get<std::uint64_t>();
    return who;
  } catch (const std::exception&) {
    return {};
  }
}

Refusal::Kind kind_of(int http_status, std::uint64_t code, std::string_view reason) {
  using Kind = Refusal::Kind;
  const auto says = [&](std::string_view words) { return reason.find(words) != reason.npos; };
  if (says("requested lease not found")) return Kind::kLeaseNotFound;
  if (says("lease already exists")) return Kind::kLeaseExists;
  // The second, when users were changed since the token was made.
  if (says("invalid auth token") || says("revision of auth store is old")) {
    return Kind::kNotAuthenticated;
  }
  if (says("authentication is not enabled")) return Kind::kNoUsers;
  if (says("authentication failed") || says("user name is empty")) return Kind::kNotPermitted;
  constexpr std::uint64_t kDeadlineExceeded = 4;
  constexpr std::uint64_t kPermissionDenied = 7;
  constexpr std::uint64_t kResourceExhausted = 8;
  constexpr std::uint64_t kUnavailable = 14;
  constexpr std::uint64_t kUnauthenticated = 16;
  if (code == kUnauthenticated || http_status == 401) return Kind::kNotAuthenticated;
  if (code == kPermissionDenied || http_status == 403) return Kind::kNotPermitted;
  if (code == kDeadlineExceeded || code == kResourceExhausted || code == kUnavailable ||
      http_status == 429 || http_status >= 500) {
    return Kind::kMayPass;
  }
  return Kind::kOther;
}

// A small number that is one in JSON.
std::uint64_t small_number(const json& object, const char* key) {
  const auto found = object.find(key);
  const bool is_small = found != object.end() && found->is_number_unsigned();
  return is_small ? std::min<std::uint64_t>(found->get<std::uint64_t>(), 999) : 0;
}

std::string string_or_empty(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::string Place::name() const { return fmt::format("{}{:016x}", prefix_of(key), lease); }

Request authenticate(const std::string& user, const std::string& password) {
  try {
    return {"/v3/auth/authenticate", json{{"name", user}, {"password", password}}.dump()};
  } catch (const json::type_error&) {
    throw Error(ExitStatus::kConfig,
                "authenticate user " + base::quoted(user) + ": the password is not UTF-8");
  }
}

std::string decode_token(std::string_view answer) {
  return decode(answer, [](const json& object) {
    std::string token = text_in(object, "token");
    if (token.empty() || token.size() > kMostTokenBytes ||
        !std::all_of(token.begin(), token.end(), base::is_graphic)) {
      throw fo::json::Misfit("missing token");
    }
    return token;
  });
}

Request grant_lease(LeaseId lease, base::Duration ttl) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(ttl).count();
  return {"/v3/lease/grant",
          fo::json::dump({{"ID", number_text(lease)}, {"TTL", std::to_string(seconds)}})};
}

base::Duration decode_grant_lease(std::string_view answer, LeaseId lease) {
  return decode(answer, [&](const json& object) {
    if (number_in(object, "ID") != lease) throw fo::json::Misfit("another lease");
    const base::Duration ttl = ttl_in(object);
    if (ttl == base::Duration::zero()) throw fo::json::Misfit("missing TTL");
    return ttl;
  });
}

Request keep_alive(LeaseId lease) {
  return {"/v3/lease/keepalive", fo::json::dump({{"ID", number_text(lease)}})};
}

std::optional<base::Duration> decode_keep_alive(std::string_view answer, LeaseId lease) {
  // A stream of one.
  answer = answer.substr(0, answer.find('\n'));
  return decode(answer, [&](const json& object) -> std::optional<base::Duration> {
    const json& result = object_in(object, "result");
    if (number_in(result, "ID") != lease) throw fo::json::Misfit("another lease");
    const base::Duration ttl = ttl_in(result);
    if (ttl == base::Duration::zero()) return std::nullopt;
    return ttl;
  });
}

Request revoke_lease(LeaseId lease) {
  return {"/v3/lease/revoke", fo::json::dump({{"ID", number_text(lease)}})};
}

Revision decode_revoke_lease(std::string_view answer) {
  return decode(answer, [](const json& object) { return revision_in(object); });
}

Request enter(const Place& place, const Contender& who) {
  return transaction(json::array({was_created(place, 0)}), json::array({put(place, who)}),
                     json::array({range_of_own(place)}));
}

Revision decode_enter(std::string_view answer, const Place& place) {
  return decode(answer, [&](const json& object) {
    if (flag_in(object, "succeeded")) return revision_in(object);
    const json& found = range_in(object, 0);
    if (found.size() != 1 || number_in(found[0], "lease") != place.lease) {
      throw fo::json::Misfit("the key belongs to another holder");
    }
    return positive_in(found[0], "create_revision");
  });
}

Request claim(const Place& place, const Contender& who) {
  const std::string prefix = text::encode_base64(prefix_of(place.key));
  const std::string end = text::encode_base64(prefix_end_of(place.key));
  const std::string before = number_text(place.created - 1);
  const json all_later{{"key", prefix},
                       {"range_end", end},
                       {"target", "CREATE"},
                       {"result", "GREATER"},
                       {"create_revision", before}};
  const json predecessor{{"request_range",
                          {{"key", prefix},
                           {"range_end", end},
                           {"max_create_revision", before},
                           {"sort_target", "CREATE"},
                           {"sort_order", "DESCEND"},
                           {"limit", "1"},
                           {"keys_only", true}}}};
  return transaction(json::array({was_created(place, place.created), all_later}),
                     json::array({put(place, who)}),
                     json::array({range_of_own(place), predecessor}));
}

Turn decode_claim(std::string_view answer, const Place& place) {
  return decode(answer, [&](const json& object) -> Turn {
    const Revision as_of = revision_in(object);
    if (flag_in(object, "succeeded")) return {Turn::State::kGranted, "", as_of};
    const json& own = range_in(object, 0);
    const json& others = range_in(object, 1);
    if (own.empty() || number_in(own[0], "create_revision") != place.created) return {};
    if (others.size() != 1) throw fo::json::Misfit("expected one key before it");
    const std::string name = bytes_in(others[0], "key");
    if (!name.starts_with(prefix_of(place.key)) || name == place.name()) {
      throw fo::json::Misfit("not a key of this queue");
    }
    return {Turn::State::kWaiting, name, as_of};
  });
}

Request look(const Place& place) {
  return transaction(json::array({was_created(place, place.created)}), json::array(),
                     json::array());
}

bool decode_look(std::string_view answer) {
  return decode(answer, [](const json& object) {
    static_cast<void>(revision_in(object));
    return flag_in(object, "succeeded");
  });
}

Request watch_deletion(const std::string& name, Revision from) {
  const json create{{"key", text::encode_base64(name)},
                    {"start_revision", number_text(from)},
                    {"filters", json::array({"NOPUT"})}};
  return {"/v3/watch", fo::json::dump({{"create_request", create}})};
}

Event decode_event(std::string_view line) {
  return decode(line, [&](const json& object) -> Event {
    if (const auto refusal = find_refusal(200, line)) return {Event::Kind::kEnded, refusal->reason};
    const json& result = object_in(object, "result");
    for (const json& event : list_in(result, "events")) {
      if (text_in(event, "type") == "DELETE") return {Event::Kind::kDeleted, ""};
    }
    if (number_in(result, "compact_revision") != 0) return {Event::Kind::kCompacted, ""};
    if (flag_in(result, "canceled")) {
      return {Event::Kind::kEnded, text_in(result, "cancel_reason")};
    }
    return {};
  });
}

Request list(const std::string& key) {
  const json body{{"key", text::encode_base64(prefix_of(key))},
                  {"range_end", text::encode_base64(prefix_end_of(key))},
                  {"sort_target", "CREATE"},
                  {"sort_order", "ASCEND"},
                  {"limit", std::to_string(kMostListed)}};
  return {"/v3/kv/range", fo::json::dump(body)};
}

std::vector<Listed> decode_list(std::string_view answer) {
  return decode(answer, [](const json& object) {
    static_cast<void>(revision_in(object));
    const json& found = list_in(object, "kvs");
    if (found.size() > kMostListed) throw fo::json::Misfit("more keys than asked for");
    std::vector<Listed> listed;
    for (const json& one : found) {
      listed.push_back({bytes_in(one, "key"), positive_in(one, "create_revision"),
                        number_in(one, "lease"), read_contender(bytes_in(one, "value"))});
    }
    return listed;
  });
}

std::optional<Refusal> find_refusal(int http_status, std::string_view answer) {
  const json object = json::parse(answer, nullptr, false);
  const bool is_object = object.is_object();
  const auto error = is_object ? object.find("error") : object.end();
  if (http_status == 200 && (!is_object || error == object.end())) return std::nullopt;
  std::string reason;
  std::uint64_t code = 0;
  if (is_object && error != object.end() && error->is_object()) {
    // Within a stream that began well.
    reason = string_or_empty(*error, "message");
    code = std::max(small_number(*error, "grpc_code"), small_number(*error, "code"));
    const auto status = static_cast<int>(small_number(*error, "http_code"));
    if (status != 0) http_status = status;
  } else if (is_object) {
    reason = string_or_empty(object, "message");
    if (reason.empty()) reason = string_or_empty(object, "error");
    code = small_number(object, "code");
  }
  if (reason.empty()) reason = "HTTP status " + std::to_string(http_status);
  return Refusal{kind_of(http_status, code, reason), reason};
}

}  // namespace fo::lock::etcd
