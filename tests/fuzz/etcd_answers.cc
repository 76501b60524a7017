// The answers of etcd's JSON gateway to each kind of request. The first byte selects one.
#include <algorithm>

#include "etcd/api.h"
#include "etcd/watch_stream.h"
#include "fuzz.h"
#include "lock/grant.h"
#include "lock/lease/etcd_queue.h"

namespace fo::lock {
namespace {

using namespace fo::etcd;

using base::ExitStatus;
using fuzz::require;
using fuzz::unless_refused;

const QueuePosition kPosition{"x", 7, 3};
constexpr Revision kMaxRevision = (1ULL << 63) - 1;

template <typename Read>
auto read(const Read& decode) {
  return unless_refused({ExitStatus::kProtocol}, decode);
}

void check_lease(std::string_view answer) {
  if (const auto ttl = read([&] { return decode_grant_lease(answer, kPosition.lease); })) {
    require(*ttl >= std::chrono::seconds(1), "a lease lasts");
    require(*ttl <= std::chrono::hours(24), "a lease does not last for ever");
  }
  const auto revoked = read([&] { return decode_revoke_lease(answer); });
  if (revoked) require(*revoked > 0 && *revoked <= kMaxRevision, "a revision is an int64");
  const auto kept = read([&] { return decode_keep_alive(answer, kPosition.lease); });
  if (kept && *kept) {
    require(**kept >= std::chrono::seconds(1), "a lease that is kept lasts");
    require(**kept <= std::chrono::hours(24), "a lease that is kept does not last for ever");
  }
}

void check_claim(std::string_view answer) {
  const auto outcome = read([&] { return decode_transaction(answer); });
  if (!outcome) return;
  require(outcome->revision > 0 && outcome->revision <= kMaxRevision, "a revision is an int64");
  const auto created = read([&] { return read_enter(*outcome, kPosition); });
  if (created) require(*created > 0 && *created <= kMaxRevision, "a revision is an int64");
  const auto result = read([&] { return read_claim(*outcome, kPosition); });
  if (!result || result->state != ClaimResult::State::kWaiting) return;
  require(result->as_of > 0 && result->as_of <= kMaxRevision, "a revision is an int64");
  require(result->predecessor.starts_with("x/") && result->predecessor != kPosition.name(),
          "another key of the queue is waited for");
  static_cast<void>(watch(watch_deletion(*result)));
}

void check_list(std::string_view answer) {
  const auto found = read([&] { return decode_range(answer, kMaxQueueListed); });
  if (!found) return;
  require(found->keys.size() <= kMaxQueueListed, "a list is short");
  for (const Listed& one : read_list(*found)) {
    require(one.created > 0 && one.created <= kMaxRevision, "a revision is an int64");
    if (one.who == Contender{}) continue;
    // Any error is a finding.
    check_lock_id(one.who.id);
  }
}

void check_token(std::string_view answer) {
  const auto token = read([&] { return decode_token(answer); });
  if (!token) return;
  const auto is_odd = [](char c) { return c <= ' ' || c >= 0x7f; };
  require(!token->empty() && std::none_of(token->begin(), token->end(), is_odd),
          "a token fits into a header");
}

// The lines of a watch on one connection, continued on a second one.
void check_watch(std::string_view bytes) {
  WatchStream stream(Watch{keys_with_prefix("x/"), 3});
  for (int connection = 0; connection < 2; ++connection) {
    static_cast<void>(stream.begin());
    stream.append(bytes);
    Revision last = stream.next_revision();
    while (const auto message = read([&] { return stream.next(); }).value_or(std::nullopt)) {
      for (const Event& event : message->events) {
        require(event.key.modified >= last, "events come in order");
        last = event.key.modified;
      }
      require(stream.next_revision() >= last, "what was told is not asked for again");
    }
  }
}

void fuzz_one(fuzz::Input input) {
  switch (input.below(6)) {
    case 0:
      return check_lease(input.rest());
    case 1:
      return check_claim(input.rest());
    case 2:
      return check_list(input.rest());
    case 3:
      return check_token(input.rest());
    case 4:
      return check_watch(input.rest());
    default: {
      const int status = static_cast<int>(200 + 100 * input.below(4));
      const auto refusal = find_refusal(status, input.rest());
      require(refusal || status == 200, "another status refuses");
      if (refusal) require(!refusal->reason.empty(), "a refusal has a reason");
    }
  }
}

}  // namespace
}  // namespace fo::lock

FO_FUZZER(fo::lock::fuzz_one)
