// A worker's answer to a question of fo-canary: the events of its stream, a line each, and their
// comparison with the expected answer.
#include <cmath>

#include "canary/check/answer.h"
#include "canary/check/comparison.h"
#include "fuzz.h"

namespace {

using namespace fo::canary;
using fo::fuzz::require;

// 7 8, of which the end of 8 is uncertain.
Canary expected() {
  Canary canary{.name = "rivers", .prompt = {1, 2}, .max_tokens = 2};
  canary.answer = {{.token = 7, .logprob = -0.1, .top = {{"a", -0.1}, {"b", -2}}},
                   {.token = 8, .logprob = -0.2, .top = {{"c", -0.2}, {"d", -0.3}}}};
  return canary;
}

void check_comparisons(const Answer& answer) {
  const Canary canary = expected();
  const Comparison comparison = compare(canary, answer, 0.05);
  require(comparison.evidence.has_value() == (comparison.match != Match::kSame),
          "a difference has evidence");
  const bool has_same_ids = answer.ids() == std::vector<TokenId>{7, 8};
  require(has_same_ids == (comparison.match == Match::kSame || comparison.match == Match::kDrift),
          "other tokens are neither the same nor drift");
  if (answer.tokens.empty()) return;
  Canary itself{.name = "itself", .prompt = {1}, .max_tokens = answer.tokens.size()};
  itself.answer = answer.tokens;
  require(compare(itself, answer, 0).match == Match::kSame, "an answer is like itself");
}

void fuzz_one(fo::fuzz::Input input) {
  const std::size_t max_tokens = 1 + input.below(8);
  const bool has_logprobs = input.below(2) == 1;
  std::string_view events = input.rest();
  const std::string message = error_message_of(events);
  require(message.size() <= 200 && message.find('\n') == std::string::npos,
          "a message is a short line");
  AnswerReader reader(max_tokens, has_logprobs);
  try {
    while (!events.empty()) {
      const std::size_t end = std::min(events.find('\n'), events.size());
      reader.add(events.substr(0, end));
      events.remove_prefix(std::min(end + 1, events.size()));
    }
  } catch (const fo::json::Misfit&) {
  }
  const Answer& answer = reader.answer();
  require(answer.tokens.size() <= max_tokens, "an answer is as long as was asked for");
  require(answer.prompt.size() <= kMaxPromptTokens, "a prompt has a limit");
  require(answer.finish.empty() || reader.is_done(), "nothing follows the end");
  for (const AnswerToken& token : answer.tokens) {
    require(std::isfinite(token.logprob), "a log-probability is a number");
    require(token.top.size() <= kMaxTopTokens, "the best tokens are few");
  }
  check_comparisons(answer);
}

}  // namespace

FO_FUZZER(fuzz_one)
