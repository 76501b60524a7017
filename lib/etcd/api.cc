#include "etcd/api.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "http/message.h"
#include "json/object.h"
#include "text/base64.h"

namespace fo::etcd {
namespace {

using base::Error;
using base::ExitStatus;
using fo::json::flag_in;
using fo::json::list_in;
using fo::json::object_in;
using fo::json::text_in;
using nlohmann::json;

constexpr std::uint64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
constexpr std::chrono::seconds kMaxTtl = std::chrono::hours(24);
constexpr std::size_t kMaxTokenBytes = std::size_t{16} * 1024;

std::string number_text(std::uint64_t number) { return std::to_string(number); }

// The value of a non-negative int64; 0 if it is missing.
std::uint64_t number_in(const json& object, const char* key) {
  const std::string text = text_in(object, key);
  if (text.empty()) return 0;
  const auto number = base::parse_uint(text);
  if (!number || *number > kMaxInt64) throw fo::json::Misfit(std::string("missing number ") + key);
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
  if (seconds > static_cast<std::uint64_t>(kMaxTtl.count()))
    throw fo::json::Misfit("TTL out of range");
  return std::chrono::seconds(seconds);
}

Revision revision_in(const json& answer) {
  return positive_in(object_in(answer, "header"), "revision");
}

template <typename Read>
auto decode(std::string_view answer, const Read& read) {
  const auto what = [answer] { return "read etcd's answer " + base::quoted(answer); };
  return fo::json::read_object(answer, kMaxAnswerBytes, what, read);
}

json encode_keys(const KeyRange& keys) {
  json object{{"key", text::encode_base64(keys.begin)}};
  if (!keys.end.empty()) object["range_end"] = text::encode_base64(keys.end);
  return object;
}

json encode_range(const Range& range) {
  json object = encode_keys(range.keys);
  if (range.revision != 0) object["revision"] = number_text(range.revision);
  if (range.limit != 0) object["limit"] = number_text(range.limit);
  if (range.keys_only) object["keys_only"] = true;
  if (range.created_until != 0) object["max_create_revision"] = number_text(range.created_until);
  if (range.order != Range::Order::kByKey) {
    object["sort_target"] = "CREATE";
    object["sort_order"] = range.order == Range::Order::kOldestFirst ? "ASCEND" : "DESCEND";
  }
  return object;
}

json encode_put(const Put& put) {
  json object{{"key", text::encode_base64(put.key)}, {"value", text::encode_base64(put.value)}};
  if (put.lease != 0) object["lease"] = number_text(put.lease);
  return object;
}

json encode_operations(const std::vector<Operation>& operations) {
  json list = json::array();
  for (const Operation& operation : operations) {
    if (const auto* range = std::get_if<Range>(&operation)) {
      list.push_back({{"request_range", encode_range(*range)}});
    } else if (const auto* put = std::get_if<Put>(&operation)) {
      list.push_back({{"request_put", encode_put(*put)}});
    } else {
      list.push_back({{"request_delete_range", encode_keys(std::get<Delete>(operation).keys)}});
    }
  }
  return list;
}

json encode_compare(const Compare& compare) {
  using Target = Compare::Target;
  json object = encode_keys(compare.keys);
  object["result"] = compare.relation == Compare::Relation::kEqual ? "EQUAL" : "GREATER";
  switch (compare.target) {
    case Target::kCreated:
      object["target"] = "CREATE";
      object["create_revision"] = number_text(compare.number);
      break;
    case Target::kModified:
      object["target"] = "MOD";
      object["mod_revision"] = number_text(compare.number);
      break;
    case Target::kLease:
      object["target"] = "LEASE";
      object["lease"] = number_text(compare.number);
      break;
  }
  return object;
}

KeyValue key_value_of(const json& object) {
  KeyValue found;
  found.key = bytes_in(object, "key");
  found.value = bytes_in(object, "value");
  found.created = number_in(object, "create_revision");
  found.modified = number_in(object, "mod_revision");
  found.lease = number_in(object, "lease");
  return found;
}

std::vector<KeyValue> keys_of(const json& range) {
  std::vector<KeyValue> keys;
  for (const json& one : list_in(range, "kvs")) {
    keys.push_back(key_value_of(one));
    if (keys.back().created == 0) throw fo::json::Misfit("no number create_revision");
  }
  return keys;
}

Refusal::Kind kind_of(int http_status, std::uint64_t code, std::string_view reason) {
  using Kind = Refusal::Kind;
  const auto says = [&](std::string_view words) { return reason.find(words) != reason.npos; };
  if (says("requested lease not found")) return Kind::kLeaseNotFound;
  if (says("lease already exists")) return Kind::kLeaseExists;
  if (says("required revision has been compacted")) return Kind::kCompacted;
  // The second reason occurs if users were changed after the token was issued.
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
    return Kind::kTransient;
  }
  return Kind::kOther;
}

// A small number in JSON form, at most 999; 0 if it is missing.
std::uint64_t small_number(const json& object, const char* key) {
  const auto found = object.find(key);
  const bool is_small = found != object.end() && found->is_number_unsigned();
  return is_small ? std::min<std::uint64_t>(found->get<std::uint64_t>(), 999) : 0;
}

}  // namespace

KeyRange keys_with_prefix(std::string_view prefix) {
  // etcd reads "\0" as the end as "no end".
  const std::string everything(1, '\0');
  if (prefix.empty()) return {everything, everything};
  std::string end(prefix);
  while (!end.empty() && end.back() == '\xff') end.pop_back();
  if (end.empty()) return {std::string(prefix), everything};
  end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return {std::string(prefix), end};
}

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
    if (token.empty() || token.size() > kMaxTokenBytes || !base::is_graphic(token)) {
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
  // The answer is a stream with one message.
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

Request range(const Range& range) { return {"/v3/kv/range", fo::json::dump(encode_range(range))}; }

Found decode_range(std::string_view answer, std::uint64_t limit) {
  return decode(answer, [limit](const json& object) {
    Found found;
    found.revision = revision_in(object);
    found.keys = keys_of(object);
    found.has_more = flag_in(object, "more");
    if (limit != 0 && found.keys.size() > limit) {
      throw fo::json::Misfit("more keys than requested");
    }
    return found;
  });
}

Request transaction(const Transaction& transaction) {
  json compares = json::array();
  for (const Compare& compare : transaction.compares) compares.push_back(encode_compare(compare));
  const json body{{"compare", std::move(compares)},
                  {"success", encode_operations(transaction.then)},
                  {"failure", encode_operations(transaction.otherwise)}};
  return {"/v3/kv/txn", fo::json::dump(body)};
}

Outcome decode_transaction(std::string_view answer) {
  return decode(answer, [](const json& object) {
    Outcome outcome;
    outcome.revision = revision_in(object);
    outcome.succeeded = flag_in(object, "succeeded");
    for (const json& response : list_in(object, "responses")) {
      outcome.results.push_back(
          {keys_of(object_in(response, "response_range")),
           number_in(object_in(response, "response_delete_range"), "deleted")});
    }
    return outcome;
  });
}

const std::vector<KeyValue>& keys_in(const Outcome& outcome, std::size_t index) {
  if (index >= outcome.results.size()) {
    throw Error(ExitStatus::kProtocol, "read etcd's answer: too few responses");
  }
  return outcome.results[index].keys;
}

Request watch(const Watch& watch) {
  json create = encode_keys(watch.keys);
  if (watch.from != 0) create["start_revision"] = number_text(watch.from);
  if (watch.deletions_only) create["filters"] = json::array({"NOPUT"});
  create["fragment"] = true;
  create["progress_notify"] = true;
  return {"/v3/watch", fo::json::dump({{"create_request", std::move(create)}})};
}

WatchMessage decode_watch(std::string_view line) {
  return decode(line, [&](const json& object) {
    WatchMessage message;
    if (const auto refusal = find_refusal(200, line)) {
      message.is_ended = true;
      message.reason = refusal->reason;
      return message;
    }
    const json& result = object_in(object, "result");
    message.revision = number_in(object_in(result, "header"), "revision");
    for (const json& event : list_in(result, "events")) {
      const bool is_deletion = text_in(event, "type") == "DELETE";
      message.events.push_back({is_deletion ? Event::Kind::kDelete : Event::Kind::kPut,
                                key_value_of(object_in(event, "kv"))});
      if (message.events.back().key.modified == 0) throw fo::json::Misfit("no number mod_revision");
    }
    message.is_created = flag_in(result, "created");
    message.is_fragment = flag_in(result, "fragment");
    message.compacted = number_in(result, "compact_revision");
    message.is_ended = flag_in(result, "canceled");
    message.reason = text_in(result, "cancel_reason");
    return message;
  });
}

std::optional<Refusal> find_refusal(int http_status, std::string_view answer) {
  const json object = fo::json::find_object(answer, kMaxAnswerBytes).value_or(json::object());
  const auto error = object.find("error");
  if (http_status == 200 && error == object.end()) return std::nullopt;
  std::string reason = http::error_message_in(answer);
  std::uint64_t code = small_number(object, "code");
  if (error != object.end() && error->is_object()) {
    // The error ended a stream that had begun.
    code = std::max(small_number(*error, "grpc_code"), small_number(*error, "code"));
    const auto status = static_cast<int>(small_number(*error, "http_code"));
    if (status != 0) http_status = status;
  }
  if (reason.empty()) reason = "HTTP status " + std::to_string(http_status);
  return Refusal{kind_of(http_status, code, reason), reason};
}

}  // namespace fo::etcd
