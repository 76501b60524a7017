// The record of a canary's verdict.
#include "fleet/verdict.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fo::base::ExitStatus;
  using fo::fuzz::require;
  using namespace fo::fleet;
  const Record record{"verdicts/w/c", std::string(reinterpret_cast<const char*>(data), size)};
  const auto verdict =
      fo::fuzz::unless_refused({ExitStatus::kBadData}, [&] { return decode_verdict(record); });
  if (!verdict) return 0;
  require(verdict->weight >= 0 && verdict->weight <= 1, "a weight is a part");
  require(verdict->is_conviction() == !verdict->expires, "only a conviction does not expire");
  const std::string text = encode(*verdict);
  if (text.size() > kMaxRecordBytes) return 0;
  require(encode(decode_verdict({record.key, text})) == text, "what is written is read");
  return 0;
}
