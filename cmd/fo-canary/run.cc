#include <algorithm>

#include "base/error.h"
#include "canary/daemon/serve.h"
#include "canary/xid/kernel_log.h"
#include "commands.h"
#include "fleet/engine_query.h"
#include "os/file/file.h"
#include "os/process/process.h"

namespace fo::fo_canary {

canary::CanaryFile read_canaries(const std::string& path) {
  return canary::parse_canaries(os::read_file(path, canary::kMaxCanaryFileBytes), path);
}

int run_daemon(const Options& options) {
  canary::ServeOptions serve;
  serve.registry = options.registry;
  serve.state_registry = options.state_registry;
  for (const std::string& path : options.canaries) serve.files.push_back(read_canaries(path));
  canary::WorkersOptions& workers = serve.workers;
  workers.writer = options.name.empty() ? os::host_name() : options.name;
  // The name is a part of each key, so an invalid one is refused at the start.
  static_cast<void>(fleet::verdict_key(std::string(32, '0'), workers.writer));
  for (const std::string& text : options.namespaces) {
    const auto pattern = fleet::NamespacePattern::parse(text);
    if (!pattern) {
      throw base::Error(base::ExitStatus::kUsage,
                        "--namespace: " + base::quoted(text) + " is not a namespace");
    }
    workers.namespaces.push_back(*pattern);
  }
  if (!options.allowed_workers.empty()) {
    workers.allowed = fleet::AllowedWorkers(options.allowed_workers);
  }
  workers.tls = worker_tls(options);
  workers.headers = fleet::key_headers(options.worker_key_file);
  workers.intervals.content = options.interval;
  serve.checker = options.checker;
  workers.lifetime = 3 * options.interval + serve.checker.longest();
  for (const std::string& text : options.xid_logs) {
    const std::size_t end = text.find('=');
    const bool has_host = end < text.find('/');
    serve.xid_logs.push_back({.host = has_host ? text.substr(0, end) : os::host_name(),
                              .path = has_host ? text.substr(end + 1) : text});
  }
  for (const canary::XidSource& source : serve.xid_logs) {
    canary::check_can_follow(source.path, "--xid");
  }
  serve.state = options.state;
  serve.admin = admin_path(options);
  serve.metrics = options.metrics;
  serve.ready_fd = options.ready_fd;
  return canary::serve(serve);
}

}  // namespace fo::fo_canary
