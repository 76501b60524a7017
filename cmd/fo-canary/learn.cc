#include "canary/file/learn.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "cli/screen/output.h"
#include "commands.h"
#include "fleet/card/card.h"
#include "fleet/engine_query.h"
#include "json/object.h"
#include "loop/run.h"
#include "os/file/file.h"
#include "os/log.h"

namespace fo::fo_canary {
namespace {

constexpr base::ByteCount kMaxPromptsBytes = 16 * base::kMiB;

// One prompt for each line that is not empty.
std::vector<canary::PromptText> read_prompts_file(const std::string& path) {
  const std::string text = os::read_file(path, kMaxPromptsBytes);
  std::vector<canary::PromptText> prompts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) {
      prompts.push_back({.name = "prompt-" + std::to_string(prompts.size() + 1),
                         .text = text.substr(begin, end - begin)});
    }
    begin = end + 1;
  }
  if (prompts.empty() || prompts.size() > canary::kMaxCanaries) {
    throw base::Error(base::ExitStatus::kBadData,
                      "read " + base::quoted(path) + ": expected 1 to 1024 lines, a prompt each");
  }
  return prompts;
}

}  // namespace

int learn(const Options& options) {
  const std::set<std::string> different(options.workers.begin(), options.workers.end());
  if (different.size() < 2 || different.size() != options.workers.size()) {
    throw base::Error(base::ExitStatus::kUsage, "--worker: expected two different ones or more");
  }
  canary::LearnOptions lesson;
  for (const std::string& url : options.workers) {
    lesson.engines.push_back(canary::make_engine_address(
        url, worker_tls(options), fleet::key_headers(options.worker_key_file), options.model));
  }
  lesson.prompts =
      options.prompts.empty() ? canary::builtin_prompts() : read_prompts_file(options.prompts);
  if (!options.card_file.empty()) {
    lesson.card = fleet::checksum(fleet::parse_card(
        os::read_file(options.card_file, fleet::kMaxCardBytes), options.card_file));
  }
  const canary::Learned learned = loop::run_to_end(canary::learn(std::move(lesson)));
  for (const std::string& line : learned.left_out)
    os::log(os::LogLevel::kInfo, "left out {}", line);
  const std::size_t kept = learned.file.canaries.size();
  const bool is_enough = kept >= options.min_canaries;
  if (is_enough) os::write_file_atomic(options.output, canary::encode(learned.file) + "\n");
  if (options.common.json) {
    cli::print_line(fo::json::dump({{"version", 1},
                                    {"canaries", kept},
                                    {"left_out", learned.left_out},
                                    {"sampler", learned.file.has_sampler}}));
  } else {
    cli::print_line("canaries: " + std::to_string(kept) + ", " +
                    std::to_string(learned.left_out.size()) + " candidates left out");
  }
  return base::to_int(is_enough ? base::ExitStatus::kOk : base::ExitStatus::kNo);
}

}  // namespace fo::fo_canary
