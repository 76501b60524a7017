// The answers of Kubernetes' API server: a Lease, what is made of it, a watch's lines, times.
#include "fuzz.h"
#include "lock/lease/kube_api.h"

namespace fo::lock {
namespace {

using base::ExitStatus;
using fuzz::require;
using fuzz::unless_refused;

const LeaseName kName{"ns", "pair"};

void check_lease(const KubeLease& lease) {
  require(!lease.resource_version.empty(), "a Lease has a resource version");
  require(lease.transitions <= kMostTransitions, "a count has 32 bits");
  require(!lease.duration || lease.duration->count() >= 0, "a duration is none or positive");
  const KubeClaim claim{"engine-0", std::chrono::seconds(15), 7, std::nullopt, {}};
  const KubeLease again = decode_lease(encode_lease(lease, claim), kName);
  require(again.resource_version == lease.resource_version, "an update is of what was seen");
  require(again.holder == "engine-0" && again.transitions == 7, "an update says what it claims");
  require(again.acquire_time == lease.acquire_time, "an update keeps the rest");
  require(encode_lease(again, claim) == again.object, "the same update changes nothing");
  require(
      watch_path(kName, lease.resource_version, std::chrono::seconds(1)).find_first_of(" \r\n") ==
          std::string::npos,
      "a path is one word");
  for (const char c : id_of_identity(lease.holder)) {
    require(static_cast<unsigned char>(c) >= 0x20, "an id has no control characters");
  }
}

void check_time(std::string_view text) {
  const auto time = parse_micro_time(text);
  if (!time) return;
  const auto micros = std::chrono::floor<std::chrono::microseconds>(*time);
  require(parse_micro_time(format_micro_time(*time)) == micros, "a time survives");
}

void fuzz_one(fuzz::Input input) {
  switch (input.below(4)) {
    case 0: {
      const auto lease = unless_refused({ExitStatus::kProtocol},
                                        [&] { return decode_lease(input.rest(), kName); });
      if (lease) check_lease(*lease);
      break;
    }
    case 1: {
      const auto event = unless_refused({ExitStatus::kProtocol},
                                        [&] { return decode_watch_event(input.rest(), kName); });
      if (event && event->kind == WatchEvent::Kind::kChanged) check_lease(event->lease);
      break;
    }
    case 2:
      if (const auto status = decode_status(input.rest())) {
        require(status->message.find('\n') == std::string::npos, "a message is a line");
      }
      break;
    default:
      check_time(input.rest());
  }
}

}  // namespace
}  // namespace fo::lock

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fo::lock::fuzz_one({data, size});
  return 0;
}
