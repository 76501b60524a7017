#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cli/screen/output.h"
#include "commands.h"
#include "fleet/record/instance.h"
#include "fleet/record/listing.h"
#include "fleet/record/selection.h"
#include "fleet/register_worker.h"
#include "fleet/registry/key.h"
#include "fleet/registry/registry.h"
#include "fleet/verdict.h"
#include "loop/run.h"
#include "os/file/input.h"
#include "worker.h"

namespace fo::fo_reg {
namespace {

using base::Deadline;
using base::ExitStatus;

// A record of a kind that no process keeps, from standard input. An operator may write a verdict,
// so it is checked here, and not only where it is read.
fleet::Record read_record(const std::string& key) {
  if (!fleet::is_key(key)) refuse("key " + base::quoted(key) + ": not a key of a registry");
  if (fleet::is_ephemeral(key)) {
    refuse("key " + base::quoted(key) +
           ": a process keeps such a record: give --endpoint and --url");
  }
  fleet::Record record{key, base::one_line(os::read_input("-", fleet::kMaxRecordBytes))};
  if (fleet::is_verdict_key(key)) static_cast<void>(fleet::decode_verdict(record));
  return record;
}

// Edits the records of the selected workers; kNo if there is none.
ExitStatus edit(const RecordOptions& options, const fleet::Edit& change) {
  if (options.selection.id.empty() && options.selection.host.empty()) {
    refuse("expected an id, or --host");
  }
  const auto registry = open_registry(options);
  const Deadline deadline = Deadline::after(options.timeout);
  const std::size_t count =
      loop::run_to_end(fleet::edit_instances(*registry, options.selection, change, deadline));
  return count > 0 ? ExitStatus::kOk : ExitStatus::kNo;
}

}  // namespace

ExitStatus put(const Options& options) {
  const RecordOptions& wanted = options.records;
  const auto registry = open_registry(wanted);
  if (!wanted.key.empty()) {
    const fleet::Record record = read_record(wanted.key);
    const Deadline deadline = Deadline::after(wanted.timeout);
    loop::run_to_end(registry->put(record, deadline));
    return ExitStatus::kOk;
  }
  const Worker worker = read_worker(wanted, *fleet::parse_life(wanted.life));
  if (worker.card) {
    const Deadline deadline = Deadline::after(wanted.timeout);
    loop::run_to_end(registry->put(*worker.card, deadline));
  }
  fleet::register_until_signal(*registry, {worker.record, wanted.timeout, wanted.ready_fd},
                               [&] { cli::print_line(fleet::id_of(worker.record.key)); });
  return ExitStatus::kOk;
}

ExitStatus rm(const Options& options) {
  const RecordOptions& wanted = options.records;
  const std::string& key = wanted.selection.id;
  if (fleet::is_key(key) && !fleet::is_ephemeral(key)) {
    const auto registry = open_registry(wanted);
    const Deadline deadline = Deadline::after(wanted.timeout);
    return loop::run_to_end(registry->remove(key, deadline)) ? ExitStatus::kOk : ExitStatus::kNo;
  }
  return edit(wanted,
              [](const std::string& text) { return fleet::with_life(text, fleet::Life::kGone); });
}

ExitStatus drain(const Options& options) { return edit(options.records, fleet::drained); }

ExitStatus undrain(const Options& options) { return edit(options.records, fleet::undrained); }

ExitStatus set(const Options& options) {
  RecordOptions wanted = options.records;
  std::vector<std::string>& words = wanted.words;
  if (!words.empty() && words.front().find('=') == std::string::npos) {
    if (!wanted.selection.host.empty()) refuse("give an id or --host, not both");
    wanted.selection.id = words.front();
    words.erase(words.begin());
  }
  if (words.empty()) refuse("expected NAME=VALUE");
  std::vector<std::pair<std::string, std::string>> labels;
  for (const std::string& word : words) labels.push_back(read_label(word));
  return edit(wanted, [&](std::string text) {
    for (const auto& [name, value] : labels) text = fleet::with_label(text, name, value);
    return text;
  });
}

ExitStatus ls(const Options& options) {
  const RecordOptions& wanted = options.records;
  const auto registry = open_registry(wanted);
  const Deadline deadline = Deadline::after(wanted.timeout);
  const std::vector<fleet::Record> records =
      loop::run_to_end(registry->list(wanted.prefix, deadline));
  if (options.common.json) {
    cli::print_line(fleet::to_json(records));
  } else if (!records.empty()) {
    cli::print(fleet::to_text(records));
  }
  return records.empty() ? ExitStatus::kNo : ExitStatus::kOk;
}

ExitStatus get(const Options& options) {
  const RecordOptions& wanted = options.records;
  const std::string& name = wanted.selection.id;
  const auto registry = open_registry(wanted);
  const Deadline deadline = Deadline::after(wanted.timeout);
  std::vector<fleet::Record> found;
  if (fleet::is_key(name)) {
    found = loop::run_to_end(registry->list(name, deadline));
    std::erase_if(found, [&](const fleet::Record& record) { return record.key != name; });
  } else {
    found = loop::run_to_end(fleet::find_instances(*registry, wanted.selection, deadline));
  }
  for (const fleet::Record& record : found) cli::print_line(record.text);
  return found.empty() ? ExitStatus::kNo : ExitStatus::kOk;
}

ExitStatus watch(const Options& options) {
  const RecordOptions& wanted = options.records;
  const auto registry = open_registry(wanted);
  fleet::watch_registry(*registry, wanted.prefix, [](const fleet::RegistryChange& change) {
    cli::print_line(fleet::to_json(change));
  });
  return ExitStatus::kOk;
}

ExitStatus check_registry(const Options& options) {
  const RecordOptions& wanted = options.records;
  const auto registry = open_registry(wanted);
  const Deadline deadline = Deadline::after(wanted.timeout);
  const std::size_t count = loop::run_to_end(registry->list("", deadline)).size();
  if (options.common.json) {
    cli::print_line(nlohmann::json{{"version", 1}, {"records", count}}.dump());
  } else {
    cli::print_line(wanted.registry + ": " + base::counted(count, "record"));
  }
  return ExitStatus::kOk;
}

}  // namespace fo::fo_reg
