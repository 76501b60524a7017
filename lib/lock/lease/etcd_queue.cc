#include "lock/lease/etcd_queue.h"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "json/object.h"
#include "lock/grant.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {

using etcd::KeyValue;
using nlohmann::json;

constexpr std::size_t kMaxValueBytes = 4096;

std::string prefix_of(const std::string& key) { return key + "/"; }

[[noreturn]] void refuse(const char* reason) {
  throw base::Error(base::ExitStatus::kProtocol,
                    std::string("read the queue of a lock in etcd: ") + reason);
}

etcd::Put put(const QueuePosition& position, const Contender& who) {
  json value{{"holder", who.id}, {"host", who.host}, {"pid", who.pid}};
  if (!who.granted_at.empty()) value["granted_at"] = who.granted_at;
  return {position.name(), fo::json::dump(value), position.lease};
}

etcd::Compare was_created(const QueuePosition& position, etcd::Revision revision) {
  etcd::Compare compare;
  compare.keys.begin = position.name();
  compare.number = revision;
  return compare;
}

etcd::Range range_of_own(const QueuePosition& position) {
  etcd::Range range;
  range.keys.begin = position.name();
  range.keys_only = true;
  return range;
}

// A queue may have keys of other programs, with any content.
Contender read_contender(const std::string& value) {
  try {
    const json object = fo::json::parse_object(value, kMaxValueBytes);
    Contender who;
    who.id = fo::json::text_in(object, "holder");
    check_lock_id(who.id);
    who.host = fo::json::text_in(object, "host");
    who.granted_at = fo::json::text_in(object, "granted_at");
    if (!who.granted_at.empty() && !text::parse_time(who.granted_at)) return {};
    const auto pid = object.find("pid");
    if (pid != object.end() && pid->is_number_unsigned()) who.pid = pid->get<std::uint64_t>();
    return who;
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

std::string QueuePosition::name() const { return fmt::format("{}{:016x}", prefix_of(key), lease); }

etcd::Transaction enter(const QueuePosition& position, const Contender& who) {
  return {{was_created(position, 0)}, {put(position, who)}, {range_of_own(position)}};
}

etcd::Revision read_enter(const etcd::Outcome& outcome, const QueuePosition& position) {
  if (outcome.succeeded) return outcome.revision;
  const std::vector<KeyValue>& found = etcd::keys_in(outcome, 0);
  if (found.size() != 1 || found[0].lease != position.lease)
    refuse("the key belongs to another holder");
  return found[0].created;
}

etcd::Transaction claim(const QueuePosition& position, const Contender& who) {
  etcd::Compare all_later;
  all_later.keys = etcd::keys_with_prefix(prefix_of(position.key));
  all_later.relation = etcd::Compare::Relation::kGreater;
  all_later.number = position.created - 1;
  etcd::Range predecessor;
  predecessor.keys = all_later.keys;
  predecessor.limit = 1;
  predecessor.keys_only = true;
  predecessor.order = etcd::Range::Order::kNewestFirst;
  predecessor.created_until = position.created - 1;
  return {{was_created(position, position.created), all_later},
          {put(position, who)},
          {range_of_own(position), predecessor}};
}

ClaimResult read_claim(const etcd::Outcome& outcome, const QueuePosition& position) {
  if (outcome.succeeded) return {ClaimResult::State::kGranted, "", outcome.revision};
  const std::vector<KeyValue>& own = etcd::keys_in(outcome, 0);
  const std::vector<KeyValue>& others = etcd::keys_in(outcome, 1);
  if (own.empty() || own[0].created != position.created) return {};
  if (others.size() != 1) refuse("expected one key before it");
  const std::string& name = others[0].key;
  if (!name.starts_with(prefix_of(position.key)) || name == position.name()) {
    refuse("not a key of this queue");
  }
  return {ClaimResult::State::kWaiting, name, outcome.revision};
}

etcd::Watch watch_deletion(const ClaimResult& result) {
  return {{result.predecessor}, result.as_of + 1, true};
}

etcd::Transaction check_position(const QueuePosition& position) {
  return {{was_created(position, position.created)}, {}, {}};
}

etcd::Range list(const std::string& key) {
  etcd::Range range;
  range.keys = etcd::keys_with_prefix(prefix_of(key));
  range.order = etcd::Range::Order::kOldestFirst;
  range.limit = kMaxQueueListed;
  return range;
}

std::vector<Listed> read_list(const etcd::Found& found) {
  std::vector<Listed> listed;
  for (const KeyValue& one : found.keys) {
    listed.push_back({one.key, one.created, one.lease, read_contender(one.value)});
  }
  return listed;
}

}  // namespace fo::lock
