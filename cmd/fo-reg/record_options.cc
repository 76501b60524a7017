#include "record_options.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/config/variables.h"
#include "cli/options.h"

namespace fo::fo_reg {
namespace {

CLI::Option* add_text(CLI::App& app, const char* name, std::string& value, const char* description,
                      const char* type) {
  return app.add_option(name, value, description)->type_name(type);
}

template <typename Number>
void add_number(CLI::App& app, const char* name, Number& value, const char* description) {
  app.add_option_function<std::string>(
         name,
         [&value, name](const std::string& text) {
           const std::optional<std::uint64_t> number = base::parse_uint(text);
           if (!number) throw CLI::ValidationError(name, "'" + text + "' is not a whole number");
           value = *number;
         },
         description)
      ->type_name("N");
}

// The options of a worker's record.
void declare_worker(CLI::App& app, RecordOptions& options) {
  fleet::Instance& worker = options.worker;
  add_text(app, "--endpoint", options.endpoint, "the endpoint that it serves",
           "NAMESPACE/COMPONENT/ENDPOINT");
  add_text(app, "--url", worker.url, "where it serves", "URL");
  add_text(app, "--model", worker.model, "the model that it serves", "NAME");
  add_text(app, "--card", options.card_file, "its card, as fo-reg card prints it", "FILE");
  add_text(app, "--id", worker.id, "its id, 32 hex digits (default: a new one)", "ID");
  add_number(app, "--slots", worker.slots, "requests that it serves at a time");
  add_number(app, "--kv-tokens", worker.kv_tokens, "tokens in its whole KV cache");
  add_text(app, "--host", worker.host, "its machine (default: this one)", "NAME");
  app.add_option("--gpu", worker.gpus, "PCI address of a GPU; repeatable")
      ->expected(1)
      ->take_all()
      ->type_name("ADDRESS");
  app.add_option("--label", options.labels, "repeatable")
      ->expected(1)
      ->take_all()
      ->type_name("NAME=VALUE");
  app.add_option("--allow-workers", options.allowed_workers,
                 "networks in which a worker may be (default: loopback and private ones)")
      ->type_name("NETWORK,...");
}

}  // namespace

void refuse(const std::string& reason) { throw base::Error(base::ExitStatus::kUsage, reason); }

void declare_registry(CLI::App& app, RecordOptions& options) {
  app.add_option("--registry", options.registry, "the registry's URI")
      ->envname("FO_REGISTRY")
      ->capture_default_str()
      ->type_name("URI");
  app.add_option("--state-registry", options.state_registry,
                 "for other records, where workers are only read")
      ->envname("FO_STATE_REGISTRY")
      ->type_name("URI");
  add_text(app, "--etcd-ca", options.etcd.ca, "the authorities of an etcd's certificate", "FILE");
  add_text(app, "--etcd-cert", options.etcd.certificate, "our certificate for an etcd", "FILE");
  add_text(app, "--etcd-key", options.etcd.key, "its private key", "FILE");
  add_text(app, "--etcd-user", options.etcd.user, "our name for an etcd", "NAME");
  add_text(app, "--etcd-password-file", options.etcd.password_file, "contains its password",
           "FILE");
  cli::add_duration(app, "--timeout", options.timeout,
                    "how long a request to the registry may take");
  cli::add_variables(app, {"KUBERNETES_SERVICE_*"});
}

std::unique_ptr<fleet::Registry> open_registry(const RecordOptions& options) {
  return fleet::make_registry(fleet::with_parameters(options.registry, options.etcd),
                              fleet::with_parameters(options.state_registry, options.etcd));
}

void declare_run(CLI::App& app, RecordOptions& options) {
  declare_worker(app, options);
  fleet::RunOptions& run = options.run;
  add_text(app, "--ready", run.ready_url, "ready when this answers 200 (default: at once)", "URL");
  cli::add_duration(app, "--ready-timeout", run.ready_timeout, "end it if it is not ready by then");
  add_text(app, "--drain", run.drain_url, "drained when this answers 200 (default: at once)",
           "URL");
  cli::add_duration(app, "--drain-timeout", run.drain_timeout,
                    "end it if it is not drained by then");
  cli::add_duration(app, "--grace", run.grace, "from SIGTERM to SIGKILL");
}

void declare_put(CLI::App& app, RecordOptions& options) {
  add_text(app, "KEY", options.key, "write a record of another kind, from stdin", "KEY");
  declare_worker(app, options);
  app.add_option("--life", options.life, "what the worker can do now")
      ->check(CLI::IsMember({"starting", "ready", "draining", "spare"}))
      ->capture_default_str()
      ->type_name("LIFE");
  add_number(app, "--pid", options.worker.pid, "its process");
  cli::add_ready_fd(app, options.ready_fd, "the record is written");
}

void declare_selection(CLI::App& app, RecordOptions& options) {
  CLI::Option* id = add_text(app, "ID", options.selection.id, "the worker", "ID");
  add_text(app, "--host", options.selection.host, "all workers of this machine", "NAME")
      ->excludes(id);
}

void declare_set(CLI::App& app, RecordOptions& options) {
  app.add_option("WORDS", options.words, "the worker, and labels; an empty value removes one")
      ->required()
      ->type_name("[ID] NAME=VALUE...");
  add_text(app, "--host", options.selection.host, "all workers of this machine", "NAME");
}

void declare_get(CLI::App& app, RecordOptions& options) {
  add_text(app, "ID", options.selection.id, "a worker, or the key of a record", "ID")->required();
}

void declare_prefix(CLI::App& app, RecordOptions& options) {
  add_text(app, "PREFIX", options.prefix, "the beginning of the keys", "PREFIX")
      ->capture_default_str();
}

}  // namespace fo::fo_reg
