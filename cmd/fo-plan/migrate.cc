#include <fmt/format.h>

#include "base/text.h"
#include "plan/migration.h"
#include "verbs.h"

namespace fo::fo_plan {
namespace {

Answer answer_migrate(const Inputs& inputs) {
  const plan::Migration migration{.setup = inputs.seconds("setup"),
                                  .bytes_per_token = inputs.number("token-bytes"),
                                  .bandwidth = inputs.number("bandwidth"),
                                  .prefill_rate = inputs.number("prefill")};
  const double tokens = inputs.number("tokens");
  const std::uint64_t requests = inputs.count("requests");
  const plan::Seconds transfer = plan::transfer_time(migration, tokens);
  const plan::Seconds replay = plan::replay_time(migration, tokens);
  const std::optional<double> crossover = plan::crossover_tokens(migration);
  const plan::Seconds last_transfer = plan::last_transfer(migration, tokens, requests);
  const plan::Seconds last_replay =
      plan::last_replay(migration, tokens, requests, inputs.count("targets"));
  const std::string which =
      crossover
          ? fmt::format("replay is faster below {} tokens", rounded(*crossover))
          : fmt::format("{} is faster at every length", transfer < replay ? "transfer" : "replay");
  Answer answer;
  answer.sentence = fmt::format(
      "The transfer of {} tokens takes {} ms = setup + bytes / bandwidth, their replay {} ms = "
      "tokens / prefill; {}; the last of {} is transferred after {} ms, and replayed on {} after "
      "{} ms; a source that is dead cannot transfer.",
      tokens, rounded(transfer.count() * 1e3), rounded(replay.count() * 1e3), which,
      base::counted(requests, "request"), rounded(last_transfer.count() * 1e3),
      base::counted(inputs.count("targets"), "target"), rounded(last_replay.count() * 1e3));
  answer.results = {{"replay_s", replay.count()},
                    {"transfer_s", transfer.count()},
                    {"crossover_tokens", crossover},
                    {"last_replay_s", last_replay.count()},
                    {"last_transfer_s", last_transfer.count()}};
  if (inputs.find("within")) answer.is_met = last_replay <= inputs.seconds("within");
  return answer;
}

}  // namespace

Verb migrate() {
  return {
      .name = "migrate",
      .description = "compare the transfer of a sequence with its replay",
      .formula = "transfer = setup + tokens * token-bytes / bandwidth; replay = tokens / prefill",
      .parameters = {{"tokens", Kind::kNumber, "tokens of a sequence"},
                     {"bandwidth", Kind::kSize, "of a GPU's link, per second"},
                     {"prefill", Kind::kNumber, "tokens per second that a target computes"},
                     {"token-bytes", Kind::kSize, "a token's KV bytes on each GPU", Need::kOptional,
                      "40KiB"},
                     {"setup", Kind::kDuration, "time of a transfer before its first byte",
                      Need::kOptional, "0s"},
                     {"requests", Kind::kCount, "sequences to migrate", Need::kOptional, "1"},
                     {"targets", Kind::kCount, "engines that the requests are spread over",
                      Need::kOptional, "1"},
                     {"within", Kind::kDuration, "the target: the last request is replayed by then",
                      Need::kOptional}},
      .answer = answer_migrate};
}

}  // namespace fo::fo_plan
