#include "lock/lockd/lockd_metrics.h"

#include "metrics/prometheus_text.h"

namespace fo::lock {

std::string metrics_text(const LockdMetrics& metrics) {
  metrics::PrometheusText text;
  const LockdCounts& lock = metrics.lock;
  text.add("gms_lockd_held", "gauge", "Whether the lock is held.", lock.is_held ? 1 : 0);
  text.add("gms_lockd_recovering", "gauge", "Whether a holder may still reconnect after a restart.",
           lock.is_recovering ? 1 : 0);
  text.add("gms_lockd_generation", "gauge", "The generation of the last grant.", lock.generation);
  text.add("gms_lockd_holding_connections", "gauge", "Connections that hold the lock.",
           lock.holding);
  text.add("gms_lockd_waiting_connections", "gauge", "Connections that wait for the lock.",
           lock.waiting);
  text.begin("gms_lockd_connections", "gauge", "Clients that are connected.");
  text.add({{"listener", "socket"}}, metrics.on_socket);
  text.add({{"listener", "port"}}, metrics.on_port);
  text.add("gms_lockd_grants_total", "counter", "Generations granted.", lock.grants);
  text.begin("gms_lockd_refusals_total", "counter", "Clients refused, by exit status.");
  for (const auto& [status, count] : metrics.refusals) {
    text.add({{"status", std::to_string(status)}}, count);
  }
  text.add("gms_lockd_expired_leases_total", "counter", "Clients of the port whose lease expired.",
           metrics.expired_leases);
  text.add("gms_lockd_record_failures_total", "counter", "Failed writes of the state file.",
           lock.record_failures);
  return text.take();
}

}  // namespace fo::lock
