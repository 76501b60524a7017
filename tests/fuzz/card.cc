// A model card from a file or a registry.
#include "fleet/card/card.h"

#include <nlohmann/json.hpp>

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fo::fuzz::require;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto card = fo::fuzz::unless_refused({fo::base::ExitStatus::kBadData},
                                             [&] { return fo::fleet::parse_card(text, "f"); });
  if (!card) return 0;
  // The text may become longer, which is an error of its own.
  const auto again = fo::fuzz::unless_refused({fo::base::ExitStatus::kBadData}, [&] {
    return fo::fleet::parse_card(fo::fleet::to_json(*card).dump(), "f");
  });
  if (again) require(*again == *card, "what is written is read");
  return 0;
}
