#include "worker.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "fleet/card/card.h"
#include "os/file/input.h"
#include "os/process/process.h"
#include "text/time_text.h"

namespace fo::fo_reg {
namespace {

// Returns the card's record, and adds the card's values to the worker.
fleet::Record read_card(const std::string& file, fleet::Instance& worker) {
  const fleet::Card card =
      fleet::parse_card(os::read_input(file, fleet::kMaxCardBytes), os::input_name(file));
  worker.card = fleet::checksum(card);
  worker.kv_abi = card.kv_abi;
  if (worker.model.empty()) worker.model = card.name;
  return {"cards/" + worker.card, fleet::to_json(card).dump()};
}

}  // namespace

std::pair<std::string, std::string> read_label(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) refuse(base::quoted(text) + " is not NAME=VALUE");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

Worker read_worker(const RecordOptions& options, fleet::Life life) {
  if (options.endpoint.empty()) refuse("--endpoint is required");
  if (options.worker.url.empty()) refuse("--url is required");
  const auto endpoint = fleet::parse_endpoint_id(options.endpoint);
  if (!endpoint) {
    refuse("--endpoint: " + base::quoted(options.endpoint) +
           " is not NAMESPACE/COMPONENT/ENDPOINT, three DNS labels");
  }
  static_cast<void>(fleet::AllowedWorkers(options.allowed_workers).check(options.worker.url));
  fleet::Instance worker = options.worker;
  if (worker.id.empty()) worker.id = fleet::make_instance_id();
  if (!fleet::is_instance_id(worker.id)) {
    refuse("--id: " + base::quoted(worker.id) + " is not 32 hex digits");
  }
  worker.life = life;
  if (worker.host.empty()) worker.host = os::host_name();
  worker.started_at = text::format_time(std::chrono::system_clock::now());
  for (const std::string& label : options.labels) worker.labels.insert(read_label(label));
  std::optional<fleet::Record> card;
  if (!options.card_file.empty()) card = read_card(options.card_file, worker);
  return {{fleet::instance_key(*endpoint, worker.id), fleet::encode(worker)}, std::move(card)};
}

}  // namespace fo::fo_reg
