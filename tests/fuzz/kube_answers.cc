// The answers of Kubernetes' API server: a Lease and its next versions, the lines of a watch, and
// times.
#include "fuzz.h"
#include "kube/api.h"
#include "kube/lease.h"
#include "lock/lease/kube_identity.h"

namespace fo::kube {
namespace {

using base::ExitStatus;
using fuzz::require;
using fuzz::unless_refused;

const Collection kLeases = leases_in("ns");

void check_lease(const Lease& lease) {
  require(!lease.resource_version.empty(), "a Lease has a resource version");
  require(lease.transitions <= kMaxTransitions, "a count has 32 bits");
  require(!lease.duration || lease.duration->count() >= 0, "a duration is none or positive");
  const Claim claim{"engine-0", std::chrono::seconds(15), 7, std::nullopt, {}};
  const Lease again = decode_lease(encode_lease(lease, claim), kLeases, "pair");
  require(again.resource_version == lease.resource_version, "an update is of what was seen");
  require(again.holder == "engine-0" && again.transitions == 7, "an update says what it claims");
  require(again.acquire_time == lease.acquire_time, "an update keeps the rest");
  require(encode_lease(again, claim) == again.object, "the same update changes nothing");
  require(watch_path(kLeases, {}, lease.resource_version, std::chrono::seconds(1))
                  .find_first_of(" \r\n") == std::string::npos,
          "a path is one word");
  for (const char c : lock::id_of_identity(lease.holder)) {
    require(static_cast<unsigned char>(c) >= 0x20, "an id has no control characters");
  }
}

void check_object(const Object& object) {
  require(!object.name.empty() && !object.resource_version.empty(), "an object can be replaced");
  const Object again = decode_object(object.text, kLeases.resource, "again");
  require(again.name == object.name && again.resource_version == object.resource_version,
          "an object is what was read");
}

void check_time(std::string_view text) {
  const auto time = parse_micro_time(text);
  if (!time) return;
  const auto micros = std::chrono::floor<std::chrono::microseconds>(*time);
  require(parse_micro_time(format_micro_time(*time)) == micros, "a time survives");
}

void fuzz_one(fuzz::Input input) {
  switch (input.below(5)) {
    case 0: {
      const auto lease = unless_refused(
          {ExitStatus::kProtocol}, [&] { return decode_lease(input.rest(), kLeases, "pair"); });
      if (lease) check_lease(*lease);
      break;
    }
    case 1: {
      const std::string_view line = input.rest();
      const auto event = unless_refused({ExitStatus::kProtocol}, [&] {
        return decode_watch_event(line, kLeases.resource, "watch");
      });
      if (!event) break;
      require(event->reason.find('\n') == std::string::npos, "a reason is a line");
      if (event->kind == WatchEvent::Kind::kModified) check_object(event->object);
      break;
    }
    case 2:
      if (const auto status = decode_status(input.rest())) {
        require(status->message.find('\n') == std::string::npos, "a message is a line");
      }
      break;
    case 4: {
      const auto list = unless_refused({ExitStatus::kProtocol}, [&] {
        return decode_list(input.rest(), kLeases.resource, "list");
      });
      if (!list) break;
      for (const Object& object : list->objects) check_object(object);
      require(list_path(kLeases, {}, 1, list->next).find_first_of(" \r\n") == std::string::npos,
              "a path is one word");
      break;
    }
    default:
      check_time(input.rest());
  }
}

}  // namespace
}  // namespace fo::kube

FO_FUZZER(fo::kube::fuzz_one)
