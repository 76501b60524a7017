#include "worker.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/deadline.h"
#include "base/error.h"
#include "fleet/card/card.h"
#include "input.h"
#include "loop/backoff.h"
#include "loop/run.h"
#include "os/log.h"
#include "os/process.h"
#include "text/time_text.h"

namespace fo::fo_reg {
namespace {

using base::Deadline;
using base::Error;

// Puts the card into the registry, and its values into the worker's record.
void add_card(fleet::Registry& registry, const RecordOptions& options, fleet::Instance& worker) {
  const std::string& file = options.card_file;
  const fleet::Card card =
      fleet::parse_card(read_input(file, fleet::kMaxCardBytes), input_name(file));
  worker.card = fleet::checksum(card);
  worker.kv_abi = card.kv_abi;
  if (worker.model.empty()) worker.model = card.name;
  try {
    const fleet::Record record{"cards/" + worker.card, fleet::to_json(card).dump()};
    const Deadline deadline = Deadline::after(options.timeout);
    loop::run_to_end(registry.put(record, deadline));
  } catch (const Error& error) {
    if (!loop::is_transient(error)) throw;
    os::log(os::LogLevel::kWarning, "{}: the card is not in the registry", error.what());
  }
}

}  // namespace

std::pair<std::string, std::string> read_label(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) refuse(base::quoted(text) + " is not NAME=VALUE");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

fleet::Record worker_record(fleet::Registry& registry, const RecordOptions& options,
                            fleet::Life life) {
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
  if (!options.card_file.empty()) add_card(registry, options, worker);
  return {fleet::instance_key(*endpoint, worker.id), fleet::encode(worker)};
}

}  // namespace fo::fo_reg
