#include "gms/server/metrics.h"

#include <array>
#include <string_view>

#include "metrics/prometheus_text.h"

namespace fo::gms {
namespace {

using metrics::PrometheusText;

std::string_view to_string(RequestResult result) {
  return result == RequestResult::kAnswered ? "answered" : "refused";
}

std::string_view to_string(DropReason reason) {
  constexpr std::array<std::string_view, 7> kNames{
      "frame_too_big", "malformed",    "other_protocol",      "silent",
      "slow_reader",   "refused_user", "too_many_connections"};
  return kNames[static_cast<std::size_t>(reason)];
}

// The metric families, each with the series of every server.
class Page {
 public:
  explicit Page(const std::vector<MeteredServer>& servers) : servers_(servers) {
    for (const MeteredServer& server : servers) {
      devices_.push_back(std::to_string(server.device.value()));
    }
  }

  template <typename Number>
  void add(std::string_view family, std::string_view help, const Number ServerCounters::*member) {
    text_.begin(family, type_of(Number()), help);
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      text_.add(labels(i), (servers_[i].counters->*member).get());
    }
  }

  template <typename Number, typename Enum, Enum kLast>
  void add(std::string_view family, std::string_view help, std::string_view label,
           const PerEnum<Number, Enum, kLast> ServerCounters::*member) {
    text_.begin(family, type_of(Number()), help);
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      (servers_[i].counters->*member).for_each([&](Enum which, const Number& number) {
        PrometheusText::Labels all = labels(i);
        all.emplace_back(label, to_string(which));
        text_.add(all, number.get());
      });
    }
  }

  template <const auto& kBounds>
  void add(std::string_view family, std::string_view help,
           const Histogram<kBounds> ServerCounters::*member) {
    text_.begin(family, "histogram", help);
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      text_.add(labels(i), servers_[i].counters->*member);
    }
  }

  std::string take() { return text_.take(); }

 private:
  static std::string_view type_of(const Gauge&) { return "gauge"; }
  static std::string_view type_of(const Counter&) { return "counter"; }

  [[nodiscard]] PrometheusText::Labels labels(std::size_t i) const {
    return {{"device", devices_[i]}, {"uuid", servers_[i].uuid.value()}, {"tag", servers_[i].tag}};
  }

  const std::vector<MeteredServer>& servers_;
  std::vector<std::string> devices_;
  PrometheusText text_;
};

}  // namespace

std::string metrics_text(const std::vector<MeteredServer>& servers) {
  using Counters = ServerCounters;
  Page page(servers);
  page.add("gms_up", "Whether the server answers.", &Counters::up);
  page.add("gms_sessions", "Sessions that hold a lock.", "mode", &Counters::sessions);
  page.add("gms_waiting_sessions", "Sessions that wait for a lock.", "lock_type",
           &Counters::waiting);
  page.add("gms_connections", "Clients that are connected.", &Counters::connections);
  page.add("gms_allocations", "Allocations of the layout.", &Counters::allocations);
  page.add("gms_allocated_bytes", "Device memory of the layout's allocations.",
           &Counters::allocated_bytes);
  page.add("gms_layout_published", "Whether a layout is published.", &Counters::committed);
  page.add("gms_layout_protected", "Whether the published layout survives a crash of the server.",
           &Counters::is_protected);
  page.add("gms_grants_total", "Locks granted.", "mode", &Counters::grants);
  page.add("gms_lock_timeouts_total", "Sessions whose wait for a lock timed out.", "lock_type",
           &Counters::lock_timeouts);
  page.add("gms_lock_wait_seconds", "How long granted sessions waited for their lock.",
           &Counters::lock_wait);
  page.add("gms_requests_total", "Requests, by result.", "result", &Counters::requests);
  page.add("gms_request_duration_seconds", "How long requests took.", &Counters::request_latency);
  page.add("gms_oom_retries_total", "Retries of allocations after the device was out of memory.",
           &Counters::oom_retries);
  page.add("gms_oom_refusals_total", "Allocations refused because the device was out of memory.",
           &Counters::oom_refusals);
  page.add("gms_exports_total", "Descriptors of memory sent to clients.", &Counters::exports);
  page.add("gms_commits_total", "Layouts published.", &Counters::commits);
  page.add("gms_seals_total", "Layouts sealed.", &Counters::seals);
  page.add("gms_layouts_dropped_total", "Layouts dropped.", &Counters::layouts_dropped);
  page.add("gms_restarts_total", "Servers that were restarted after a crash.", &Counters::restarts);
  page.add("gms_dropped_connections_total", "Connections that the server closed, by reason.",
           "reason", &Counters::dropped_connections);
  page.add("gms_unwanted_fds_total",
           "Messages of clients whose unexpected descriptors were closed.",
           &Counters::unexpected_fds);
  return page.take();
}

}  // namespace fo::gms
