// model.safetensors.index.json: no name in it may lead out of its folder.
#include "weights/file/model_index.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fo::fuzz::require;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto files = fo::fuzz::unless_refused(
      {fo::base::ExitStatus::kBadData}, [&] { return fo::weights::parse_model_index(text, "f"); });
  if (!files) return 0;
  for (const auto& [tensor, file] : *files) {
    require(!file.empty() && file != "." && file != "..", "a file has a name");
    require(file.find('/') == std::string::npos && file.find('\0') == std::string::npos,
            "a file is in the folder");
  }
  return 0;
}
