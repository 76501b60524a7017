// What an API server of Kubernetes says about the workers of a Service: EndpointSlices, and
// ConfigMaps with cards.
#include "fleet/registry/kube/service_objects.h"

#include "fleet/record/worker_url.h"
#include "fuzz.h"

namespace fo::fleet {
namespace {

using base::ExitStatus;
using fuzz::require;
using fuzz::unless_refused;

void check_slice(const EndpointSlice& slice) {
  const AllowedWorkers any_network(kAnyNetwork);
  require(slice.workers.size() <= kMaxSliceEndpoints, "a slice has a limit");
  for (const SliceWorker& worker : slice.workers) {
    static_cast<void>(any_network.check(worker.instance.url));
    const std::string text = encode(worker.instance);
    if (text.size() > kMaxRecordBytes) continue;
    const Instance again = decode_instance({worker.key, text});
    require(again.url == worker.instance.url && again.life == worker.instance.life,
            "a record says what was read");
  }
}

void fuzz_one(fuzz::Input input) {
  const bool is_slice = input.below(2) == 0;
  const kube::Object object{"a", "ns", "1", std::string(input.rest())};
  if (is_slice) {
    const auto slice =
        unless_refused({ExitStatus::kProtocol}, [&] { return read_endpoint_slice(object); });
    if (slice) check_slice(*slice);
  } else {
    const auto found = unless_refused({ExitStatus::kProtocol, ExitStatus::kBadData},
                                      [&] { return read_service_card(object); });
    if (found && *found) require(!(*found)->service.empty(), "a card is that of a Service");
  }
}

}  // namespace
}  // namespace fo::fleet

FO_FUZZER(fo::fleet::fuzz_one)
