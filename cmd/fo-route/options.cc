#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "cli/config/variables.h"
#include "cli/options.h"
#include "fleet/engine_query.h"
#include "keys.h"
#include "route/admin.h"
#include "tuning.h"

namespace fo::fo_route {
namespace {

using base::Error;
using base::ExitStatus;

[[noreturn]] void refuse(const std::string& reason) { throw Error(ExitStatus::kUsage, reason); }

void declare_serve(CLI::App& app, Options& options) {
  route::ServeOptions& serve = options.serve;
  cli::add_list(app, "--listen", serve.listen, "serve clients here; repeatable", "HOST:PORT");
  cli::add_list(app, "--worker", options.workers, "an engine; repeatable", "[NAME=]URL");
  cli::add_text(app, "--registry", serve.registry,
                "registry of the engines; one for weights and verdicts if it is read-only", "URI");
  cli::add_text(app, "--state-registry", serve.state_registry, "", "URI");
  cli::add_text(app, "--state", serve.state,
                "the last engines of the registry, for a start while it is unreachable", "FILE");
  cli::add_duration(app, "--stale", serve.monitor.stale,
                    "how long to use an engine whose record is lost");
  cli::add_list(app, "--namespace", options.namespaces,
                "only engines of this namespace, or of NAME-*; repeatable", "NAMESPACE");
  cli::add_worker_access(app, options.worker_key_file, options.worker_ca);
  cli::add_allowed_workers(app, options.allowed_workers);
  cli::add_admin(app, options.admin, "route.sock", "FO_ROUTE_ADMIN");
  cli::add_metrics(app, serve.metrics);
  app.add_flag("--metrics-groups", serve.router.metrics_groups,
               "count moved answers by the groups of their engines, too");
  cli::add_tls(app, serve.tls.certificate, serve.tls.key);
  cli::add_text(app, "--keys", options.keys_file,
                "the clients' keys, their tiers and limits (TOML)", "FILE");
  app.add_flag("--salt-by-key", serve.router.rules.salt_by_key,
               "a prefix cache of its own for each key (cache_salt)");
  app.add_flag("--priority-by-tier", serve.router.rules.priority_by_tier,
               "send the engines a key's tier: 0 for premium, 1, 2 (priority)");
  cli::add_number(app, "--slots", serve.source.slots,
                  "requests of an engine at a time, and routers that share them", 1);
  cli::add_number(app, "--routers", serve.source.routers, "", 1);
  using enum route::Policy;
  cli::add_choice(app, "--choice", serve.router.dispatch.policy,
                  {{"prefix", kPrefix}, {"least", kLeast}, {"round-robin", kRoundRobin}},
                  "how an engine is chosen; when a faulty one gets no requests", "POLICY");
  app.add_option("--breaker", options.breaker, "")
      ->check(CLI::IsMember({"standard", "classic"}))
      ->capture_default_str()
      ->type_name("RULES");
  app.add_flag("--strict-sets", options.strict_sets, "never use a set of weight 0");
  app.add_option("--slo-rate", serve.router.slo_rate,
                 "expected requests per second (default: as measured)")
      ->check(CLI::PositiveNumber & cli::not_nan())
      ->type_name("N");
  cli::add_number(app, "--queue-requests", serve.router.dispatch.queue.requests,
                  "limit of waiting requests, for each set", 1);
  cli::add_number(app, "--queue-tokens", serve.router.dispatch.queue.tokens,
                  "limit of their tokens", 1);
  cli::add_positive_duration(app, "--queue-timeout", serve.router.dispatch.queue.timeout,
                             "how long a request waits for an engine");
  cli::add_positive_duration(app, "--first-token-timeout", serve.router.times.first_token,
                             "time to first token; 1 s more for each 1,000 prompt tokens");
  cli::add_positive_duration(app, "--stream-timeout", serve.router.times.stream,
                             "silence of one stream while others of its engine continue");
  cli::add_positive_duration(app, "--answer-timeout", serve.router.times.answer,
                             "time of an answer that is not streamed");
  app.add_flag("--no-resume", options.no_resume,
               "end a started answer with an error when its engine fails");
  cli::add_duration(app, "--resume-wait", serve.router.resume.wait,
                    "how long a started answer waits for an engine to continue it");
  cli::add_size(app, "--bandwidth", serve.router.resume.moves.bandwidth,
                "KV bytes, and prompt tokens (N), per second, to plan moves (default: measured)");
  cli::add_number(app, "--prefill", serve.router.resume.moves.prefill, "", 1);
  app.add_flag("--strict-seed", serve.router.rules.resume.strict_seed,
               "do not resume sampled answers with a seed");
  app.add_flag("--resume-penalties", serve.router.rules.resume.penalties,
               "resume answers with a frequency penalty, by an equivalent logit bias");
  app.add_flag("--resume-text", serve.router.rules.resume.text,
               "resume answers whose tokens are unknown, after their text");
  cli::add_positive_duration(app, "--client-timeout", serve.limits.write_timeout,
                             "how long a client may hold up its engine by not reading");
  cli::add_size(app, "--max-body", serve.limits.body_bytes,
                "limit of a request's body, and of all bodies together");
  cli::add_size(app, "--max-bodies", serve.limits.all_bodies, "");
  cli::add_list(app, "--allow-path", serve.router.allowed_paths,
                "forward this path, too; repeatable", "PATH");
  cli::add_list(app, "--allow-field", serve.router.rules.allowed_fields,
                "forward this field of a body, too; repeatable", "NAME");
  app.add_flag("--pass-authorization", serve.router.rules.pass_authorization,
               "forward the clients' Authorization over https, or to this machine");
  app.add_option("--overload-status", serve.router.dispatch.overload_status,
                 "the status of a refusal when no engine has room")
      ->check(CLI::IsMember({503, 529}))
      ->capture_default_str()
      ->type_name("STATUS");
  app.add_flag("--takeover", serve.takeover,
               "take over from the router with this admin socket, which finishes its requests");
  cli::add_duration(app, "--lame-duck", serve.lame_duck,
                    "after SIGTERM: for new connections, and for requests in flight");
  cli::add_duration(app, "--drain", serve.drain, "");
  cli::add_ready_fd(app, serve.ready_fd, "clients can connect");
  declare_tuning(app, serve);
  cli::add_variables(app, {"NOTIFY_SOCKET", "WATCHDOG_*"});
}

void declare_ctl(CLI::App& app, Options& options) {
  app.add_option("WORDS", options.words, "an action and its arguments")
      ->required()
      ->transform(cli::example_words(
          {"state", "requests", "drain", "undrain", "weight", "level", "kill", "reload"}))
      ->type_name("ACTION [ARGUMENT]...");
  cli::add_admin(app, options.admin, "route.sock", "FO_ROUTE_ADMIN");
  cli::add_duration(app, "--timeout", options.timeout, "how long the router may take to answer");
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  CLI::App* const serve = app.add_subcommand("serve", "serve clients, and route their requests");
  serve->callback([&options] { options.command = Options::Command::kServe; });
  declare_serve(*serve, options);
  CLI::App* const ctl = app.add_subcommand("ctl", "query a running router, or change what it does");
  ctl->callback([&options] { options.command = Options::Command::kCtl; });
  declare_ctl(*ctl, options);
}

void check(Options& options) {
  if (options.command == Options::Command::kCtl) return;
  route::ServeOptions& serve = options.serve;
  for (const std::string& text : options.workers)
    serve.workers.push_back(route::parse_worker(text));
  if (serve.workers.empty() && serve.registry.empty()) {
    refuse("expected --worker or --registry");
  }
  if (!serve.state.empty() && serve.registry.empty()) refuse("--state needs --registry");
  if (serve.router.rules.salt_by_key && options.keys_file.empty()) {
    refuse("--salt-by-key needs --keys");
  }
  if (serve.router.rules.pass_authorization && !options.worker_key_file.empty()) {
    refuse("--pass-authorization: can't be combined with --worker-key");
  }
  if (serve.router.resume.moves.bandwidth == base::ByteCount(0)) {
    refuse("--bandwidth: expected more than 0");
  }
  if (serve.router.rules.priority_by_tier && options.keys_file.empty()) {
    refuse("--priority-by-tier needs --keys");
  }
  if (serve.tls.certificate.empty() != serve.tls.key.empty()) {
    refuse("--tls-cert and --tls-key: one needs the other");
  }
  check_tuning(serve);
  for (const std::string& path : serve.router.allowed_paths) {
    if (!path.starts_with('/') || !base::is_graphic(path)) {
      refuse("--allow-path: " + base::quoted(path) + " is not a path");
    }
  }
  for (const std::string& text : options.namespaces) {
    const auto pattern = fleet::NamespacePattern::parse(text);
    if (!pattern) refuse("--namespace: " + base::quoted(text) + " is not a namespace");
    serve.source.namespaces.push_back(*pattern);
  }
  if (serve.source.namespaces.empty()) {
    serve.source.namespaces.push_back(
        *fleet::NamespacePattern::parse(std::string(fleet::kGlobalNamespace)));
  }
  if (!options.allowed_workers.empty()) {
    serve.source.allowed = fleet::AllowedWorkers(options.allowed_workers);
  }
  if (!options.keys_file.empty()) serve.router.keys = read_keys(options.keys_file);
  if (options.breaker == "classic") {
    if (serve.source.health != fleet::HealthRules{}) {
      refuse("--breaker classic: can't be combined with --health-*");
    }
    serve.source.health = fleet::kClassicBreaker;
  }
  serve.router.dispatch.uses_unweighted_sets = !options.strict_sets;
  serve.router.resume.enabled = !options.no_resume;
  if (!options.worker_ca.empty()) serve.source.tls.emplace().ca = options.worker_ca;
  serve.router.worker_headers = fleet::key_headers(options.worker_key_file);
  serve.admin = options.admin.empty() ? route::default_admin_path() : options.admin;
}

route::ServeOptions read_again(const cli::Tool& tool, const std::vector<std::string>& arguments) {
  Options options;
  const auto declare_all = [&](CLI::App& app) { declare(app, options); };
  const cli::ParseResult result = cli::parse(tool, options.common, declare_all, arguments);
  if (result.kind != cli::ParseResult::Kind::kRun) throw Error(ExitStatus::kConfig, result.text);
  check(options);
  options.serve.set_log = [tool, common = options.common] { cli::set_log(tool, common); };
  return options.serve;
}

}  // namespace fo::fo_route
