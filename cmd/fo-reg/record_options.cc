#include "record_options.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/options.h"

namespace fo::fo_reg {
namespace {

// The options of a worker's record.
void declare_worker(CLI::App& app, RecordOptions& options) {
  fleet::Instance& worker = options.worker;
  cli::add_text(app, "--endpoint", options.endpoint, "the endpoint that it serves",
                "NAMESPACE/COMPONENT/ENDPOINT");
  cli::add_text(app, "--url", worker.url, "where it serves", "URL");
  cli::add_text(app, "--model", worker.model, "the model that it serves", "NAME");
  cli::add_text(app, "--card", options.card_file, "its card, as fo-reg card prints it", "FILE");
  cli::add_text(app, "--id", worker.id, "its id, 32 hex digits (default: a new one)", "ID");
  cli::add_number(app, "--slots", worker.slots, "requests that it serves at a time");
  cli::add_number(app, "--kv-tokens", worker.kv_tokens, "tokens in its whole KV cache");
  cli::add_text(app, "--host", worker.host, "its machine (default: this one)", "NAME");
  cli::add_list(app, "--gpu", worker.gpus, "PCI address of a GPU; repeatable", "ADDRESS");
  cli::add_list(app, "--label", options.labels, "repeatable", "NAME=VALUE");
  cli::add_allowed_workers(app, options.allowed_workers);
}

}  // namespace

void refuse(const std::string& reason) { throw base::Error(base::ExitStatus::kUsage, reason); }

void declare_registry(CLI::App& app, RecordOptions& options) {
  cli::add_registries(app, options.registry, options.state_registry, "other records");
  cli::add_text(app, "--etcd-ca", options.etcd.ca, "the authorities of an etcd's certificate",
                "FILE");
  cli::add_text(app, "--etcd-cert", options.etcd.certificate, "our certificate for an etcd",
                "FILE");
  cli::add_text(app, "--etcd-key", options.etcd.key, "its private key", "FILE");
  cli::add_text(app, "--etcd-user", options.etcd.user, "our name for an etcd", "NAME");
  cli::add_text(app, "--etcd-password-file", options.etcd.password_file, "contains its password",
                "FILE");
  cli::add_duration(app, "--timeout", options.timeout,
                    "how long a request to the registry may take");
}

std::unique_ptr<fleet::Registry> open_registry(const RecordOptions& options) {
  return fleet::make_registry(fleet::with_parameters(options.registry, options.etcd),
                              fleet::with_parameters(options.state_registry, options.etcd));
}

void declare_run(CLI::App& app, RecordOptions& options) {
  declare_worker(app, options);
  fleet::RunOptions& run = options.run;
  cli::add_text(app, "--ready", run.ready_url, "ready when this URL answers 200 (default: at once)",
                "URL");
  cli::add_duration(app, "--ready-timeout", run.ready_timeout,
                    "end a worker that is not ready by then");
  cli::add_text(app, "--drain", run.drain_url,
                "drained when this URL answers 200 (default: at once)", "URL");
  cli::add_duration(app, "--drain-timeout", run.drain_timeout,
                    "end a worker that is not drained by then");
  cli::add_duration(app, "--grace", run.grace, "from SIGTERM to SIGKILL");
}

void declare_put(CLI::App& app, RecordOptions& options) {
  cli::add_text(app, "KEY", options.key, "write a record of another kind, from stdin", "KEY");
  declare_worker(app, options);
  app.add_option("--life", options.life, "the worker's present state")
      ->check(CLI::IsMember({"starting", "ready", "draining", "spare"}))
      ->capture_default_str()
      ->type_name("LIFE");
  cli::add_number(app, "--pid", options.worker.pid, "its process");
  cli::add_ready_fd(app, options.ready_fd, "the record is written");
}

void declare_selection(CLI::App& app, RecordOptions& options) {
  CLI::Option* id = cli::add_text(app, "ID", options.selection.id, "the worker", "ID");
  cli::add_text(app, "--host", options.selection.host, "all workers of this machine", "NAME")
      ->excludes(id);
}

void declare_set(CLI::App& app, RecordOptions& options) {
  app.add_option("WORDS", options.words, "the worker, and labels; an empty value removes one")
      ->required()
      ->type_name("[ID] NAME=VALUE...");
  cli::add_text(app, "--host", options.selection.host, "all workers of this machine", "NAME");
}

void declare_get(CLI::App& app, RecordOptions& options) {
  cli::add_text(app, "ID", options.selection.id, "a worker, or the key of a record", "ID")
      ->required();
}

void declare_prefix(CLI::App& app, RecordOptions& options) {
  cli::add_text(app, "PREFIX", options.prefix, "the beginning of the keys", "PREFIX")
      ->capture_default_str();
}

}  // namespace fo::fo_reg
