#include "route/worker/worker.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "net/resolve.h"

namespace fo::route {
namespace {

constexpr base::Duration kTakeoverTime = std::chrono::seconds(10);

}  // namespace

void Pace::on_token(TimePoint now, std::optional<base::Duration> gap) {
  constexpr int kWeight = 16;
  last_token_ = now;
  if (!gap) return;
  mean_gap_ = mean_gap_ ? *mean_gap_ + (*gap - *mean_gap_) / kWeight : *gap;
}

void SlotLimit::on_overload(std::uint64_t slots, base::Duration pause, TimePoint began,
                            TimePoint now) {
  if (began > halved_at_) {
    limit_ = std::max<std::uint64_t>(limit(slots) / 2, 1);
    halved_at_ = now;
  }
  grows_after_ = std::max(grows_after_, now + pause);
}

bool SlotLimit::on_queue(std::uint64_t slots, std::uint64_t ours, double running, double waiting) {
  if (!(waiting > 0)) return false;
  const double kept = static_cast<double>(ours) * running / (running + waiting);
  // `kept` is NaN if an engine's numbers are infinite.
  const bool is_number = kept >= 1 && kept <= static_cast<double>(ours);
  const std::uint64_t limit_now = is_number ? static_cast<std::uint64_t>(kept) : 1;
  if (limit_now >= limit(slots)) return false;
  limit_ = limit_now;
  return true;
}

bool SlotLimit::on_success(std::uint64_t slots, TimePoint now) {
  if (!limit_ || now < grows_after_) return false;
  if (++*limit_ >= slots) limit_.reset();
  return true;
}

std::uint64_t SlotLimit::limit(std::uint64_t slots) const {
  return std::max<std::uint64_t>(std::min(limit_.value_or(slots), slots), 1);
}

bool Unavailability::on_unavailable(TimePoint now, std::optional<TimePoint> last_token,
                                    base::Duration time) {
  const bool continues = since_ && now - last_ < time && last_token <= since_;
  if (!continues) since_ = now;
  last_ = now;
  return now - *since_ >= time;
}

void Rate::add(std::uint64_t amount, base::Duration time) {
  constexpr double kKept = 0.9;
  amount_ = amount_ * kKept + static_cast<double>(amount);
  time_ = time_ * kKept + std::max<base::Duration>(time, std::chrono::microseconds(1));
}

std::optional<double> Rate::per_second() const {
  if (time_ == time_.zero()) return std::nullopt;
  return amount_ / time_.count();
}

void Worker::set_url(const std::string& text, const net::Url& parsed,
                     const std::optional<net::TlsFiles>& tls,
                     const std::shared_ptr<const net::Networks>& networks) {
  origin = http::make_origin(parsed, tls);
  origin.networks = networks;
  url = text;
  base_path = net::base_path(parsed);
}

bool Worker::is_private() const {
  const std::string& host = origin.address.host;
  // net::resolve() asks no server for "localhost".
  return origin.tls.has_value() || host == "localhost" || net::is_loopback(host);
}

fleet::SetMember Worker::as_member(base::Duration now) const {
  return {.state = is_convicted() ? fleet::HealthState::kConvicted : health.state(),
          .weight = is_convicted() ? 0 : std::min(health.weight(now), verdict.weight),
          .failed_probations = health.failed_probations(),
          .panic_weight = health.panic_weight()};
}

double Worker::capacity_weight(TimePoint now) const {
  const bool is_coming_back = unreachable_since && is_known && is_offered() && !is_convicted() &&
                              now - *unreachable_since < kTakeoverTime;
  return is_coming_back ? 1 : weight;
}

bool Worker::serves(const std::string& model_name) const {
  return model_name == model || other_models.contains(model_name);
}

std::uint64_t Worker::slots_now(double concurrency_factor) const {
  const auto reduced =
      static_cast<std::uint64_t>(std::floor(static_cast<double>(slots) * concurrency_factor));
  return slot_limit.limit(std::max<std::uint64_t>(reduced, 1));
}

}  // namespace fo::route
