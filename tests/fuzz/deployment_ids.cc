// The endpoint ids of a DynamoGraphDeployment.
#include "fleet/record/deployment_hash.h"
#include "fuzz.h"
#include "pod/dgd/dgd.h"
#include "yaml/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fo::fuzz::require;
  using fo::fuzz::unless_refused;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto documents = unless_refused({fo::base::ExitStatus::kBadData},
                                        [&] { return fo::yaml::read_yaml(text, "f"); });
  if (!documents) return 0;
  for (const fo::yaml::Document& document : *documents) {
    if (!fo::pod::is_dgd(document.root)) continue;
    const auto ids = unless_refused({fo::base::ExitStatus::kBadData}, [&] {
      return fo::fleet::deployment_ids(document.root, "generate", "f");
    });
    if (!ids) continue;
    require(ids->hash.size() == fo::fleet::kHashDigits, "a hash has its length");
    for (const fo::fleet::ServiceId& one : ids->services) {
      require(fo::fleet::parse_endpoint_id(fo::fleet::to_string(one.id)) == one.id,
              "an id is read as it was written");
    }
  }
  return 0;
}
