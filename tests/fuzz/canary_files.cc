// The files of fo-canary: its questions, and what it keeps over a restart.
#include "canary/file/canary_file.h"
#include "canary/judge/state_file.h"
#include "fuzz.h"

namespace {

using namespace fo::canary;
using fo::base::ExitStatus;
using fo::fuzz::require;
using fo::fuzz::unless_refused;

void check_canaries(std::string_view text) {
  const auto file =
      unless_refused({ExitStatus::kBadData}, [&] { return parse_canaries(text, "file"); });
  if (!file) return;
  require(!file->canaries.empty() && file->canaries.size() <= kMaxCanaries, "there is a question");
  for (const Canary& canary : file->canaries) {
    require(!canary.prompt.empty() && canary.prompt.size() <= kMaxPromptTokens,
            "a question has a prompt");
    require(!canary.answer.empty() && canary.answer.size() <= canary.max_tokens,
            "a question has an answer");
    require(canary.time.count() >= 0, "a time is not negative");
  }
  const std::string written = encode(*file);
  require(encode(parse_canaries(written, "again")) == written, "what is written is read");
}

void check_state(std::string_view text) {
  const auto state =
      unless_refused({ExitStatus::kBadData}, [&] { return parse_state(text, "file"); });
  if (!state) return;
  for (const auto& [id, worker] : *state) {
    WorkerHealth health;
    health.restore(worker.health, now());
    require(health.state() == worker.health.state, "a restored worker is in its state");
  }
  const std::string written = encode(*state);
  require(encode(parse_state(written, "again")) == written, "what is written is read");
}

void fuzz_one(fo::fuzz::Input input) {
  if (input.byte() == 's') {
    check_state(input.rest());
  } else {
    check_canaries(input.rest());
  }
}

}  // namespace

FO_FUZZER(fuzz_one)
