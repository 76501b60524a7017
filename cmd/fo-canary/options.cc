#include "options.h"

#include <CLI/CLI.hpp>

#include "cli/config/variables.h"
#include "cli/options.h"
#include "commands.h"
#include "fleet/admin_socket.h"

namespace fo::fo_canary {
namespace {

void declare_registry(CLI::App& app, Options& options) {
  cli::add_registries(app, options.registry, options.state_registry, "verdicts");
}

// The limit of durations of which several are added.
constexpr base::Duration kDay = std::chrono::hours(24);

// The options of a check.
void declare_check(CLI::App& app, Options& options) {
  cli::add_list(app, "--canaries", options.canaries, "a file of fo-canary learn", "FILE")
      ->required();
  app.add_option("--tolerance", options.checker.rules.tolerance,
                 "of log-probabilities, beyond their learned spread")
      ->check(CLI::NonNegativeNumber & cli::not_nan())
      ->capture_default_str()
      ->type_name("N");
  cli::add_number(app, "--retries", options.checker.retries, "repetitions of a failed check", 0,
                  1000);
  cli::add_positive_duration(app, "--answer-timeout", options.checker.rules.timeout,
                             "of a whole answer", kDay);
  cli::add_positive_duration(app, "--hung-after", options.checker.hung_after,
                             "without a token while requests run, a worker is hung", kDay);
}

void declare_learn(CLI::App& app, Options& options) {
  cli::add_text(app, "--model", options.model, "the name of the model", "NAME")->required();
  cli::add_list(app, "--worker", options.workers, "a good engine; two or more", "URL")->required();
  cli::add_text(app, "--card", options.card_file, "the engines' card, as fo-reg card prints it",
                "FILE");
  cli::add_text(app, "--prompts", options.prompts,
                "a prompt on each line (default: built-in texts)", "FILE");
  cli::add_number(app, "--min-canaries", options.min_canaries, "exit 1 if fewer are left", 0, 1000);
  cli::add_text(app, "-o,--output", options.output, "write the canaries here", "FILE")->required();
  cli::add_worker_access(app, options.worker_key_file, options.worker_ca);
}

void declare_once(CLI::App& app, Options& options) {
  cli::add_list(app, "--worker", options.workers, "the engine", "URL")->required();
  cli::add_text(app, "--model", options.model, "the name of the model (default: of the file)",
                "NAME");
  declare_check(app, options);
  cli::add_worker_access(app, options.worker_key_file, options.worker_ca);
}

void declare_run(CLI::App& app, Options& options) {
  declare_registry(app, options);
  cli::add_list(app, "--namespace", options.namespaces,
                "only workers of this namespace, or of NAME-*; repeatable", "NAMESPACE");
  cli::add_allowed_workers(app, options.allowed_workers);
  declare_check(app, options);
  cli::add_positive_duration(app, "--interval", options.interval,
                             "between two questions to a worker", kDay);
  cli::add_list(app, "--xid", options.xid_logs,
                "convict by GPU errors in this log of the kernel; repeatable", "[HOST=]FILE");
  cli::add_worker_access(app, options.worker_key_file, options.worker_ca);
  cli::add_text(app, "--name", options.name, "of this canary in its verdicts (default: the host's)",
                "NAME");
  cli::add_text(app, "--state", options.state, "keeps the state of workers over a restart", "FILE");
  cli::add_admin(app, options.admin, "canary.sock", "FO_CANARY_ADMIN");
  cli::add_metrics(app, options.metrics);
  cli::add_ready_fd(app, options.ready_fd, "the checks have begun");
  cli::add_variables(app, {"NOTIFY_SOCKET", "WATCHDOG_*"});
}

void declare_state(CLI::App& app, Options& options) {
  cli::add_text(app, "ID", options.id, "the worker (default: all)", "ID");
  cli::add_admin(app, options.admin, "canary.sock", "FO_CANARY_ADMIN");
  cli::add_duration(app, "--timeout", options.timeout, "how long the canary may take to answer");
}

void declare_acquit(CLI::App& app, Options& options) {
  cli::add_text(app, "ID", options.id, "the worker", "ID")->required();
  declare_registry(app, options);
  cli::add_duration(app, "--timeout", options.timeout, "how long the registry may take");
}

void declare_rules(CLI::App& app, Options& options) {
  app.add_flag("--tests", options.print_tests, "print the unit tests of the rules, for promtool");
  cli::add_number(app, "--for-seconds", options.for_seconds,
                  "how long a state must last (default: the time in each rule)", 0, 86400);
}

void declare_xid(CLI::App& app, Options& options) {
  app.add_option("--from", options.log, "the kernel's log, or a file of it; -: standard input")
      ->capture_default_str()
      ->type_name("FILE");
  app.add_flag("--follow", options.follow, "wait for lines that are appended to a file");
}

struct Command {
  const char* name;
  const char* description;
  void (*declare)(CLI::App& app, Options& options);
  int (*run)(const Options& options);
};

constexpr Command kCommands[] = {
    {"learn", "learn questions and their answers from good engines", declare_learn, learn},
    {"once", "check one engine; exit 0 healthy, 1 suspicious, 2 unhealthy, 3 unknown", declare_once,
     once},
    {"run", "check all workers of a registry, and write verdicts", declare_run, run_daemon},
    {"state", "show what a running canary has found", declare_state, state},
    {"acquit", "lift the convictions of a worker; exit 1 if it has none", declare_acquit, acquit},
    {"rules", "print alert rules for Prometheus", declare_rules, rules},
    {"xid", "print the GPU errors of the kernel's log as JSON lines", declare_xid, xid},
};

}  // namespace

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  for (const Command& command : kCommands) {
    command.declare(
        *cli::add_command(app, options.run, command.run, command.name, command.description),
        options);
  }
}

std::unique_ptr<fleet::Registry> open_registry(const Options& options) {
  return fleet::make_registry(options.registry, options.state_registry);
}

std::optional<net::TlsFiles> worker_tls(const Options& options) {
  if (options.worker_ca.empty()) return std::nullopt;
  net::TlsFiles files;
  files.ca = options.worker_ca;
  return files;
}

std::string admin_path(const Options& options) {
  return options.admin.empty() ? fleet::default_admin_path("canary.sock") : options.admin;
}

}  // namespace fo::fo_canary
