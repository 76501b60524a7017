#include "route/worker/worker.h"

#include <algorithm>
#include <cmath>

namespace fo::route {

void Pace::on_token(TimePoint now, std::optional<base::Duration> gap) {
  constexpr int kWeight = 16;
  last_token_ = now;
  if (!gap) return;
  mean_gap_ = mean_gap_ ? *mean_gap_ + (*gap - *mean_gap_) / kWeight : *gap;
}

void Share::on_overload(std::uint64_t slots, base::Duration pause, TimePoint now) {
  limit_ = std::max<std::uint64_t>(limit(slots) / 2, 1);
  grows_after_ = std::max(grows_after_, now + pause);
}

bool Share::on_success(std::uint64_t slots, TimePoint now) {
  if (!limit_ || now < grows_after_) return false;
  if (++*limit_ >= slots) limit_.reset();
  return true;
}

std::uint64_t Share::limit(std::uint64_t slots) const {
  return std::max<std::uint64_t>(std::min(limit_.value_or(slots), slots), 1);
}

void Worker::set_url(const std::string& text, const net::Url& parsed,
                     const std::optional<net::TlsFiles>& tls) {
  origin = http::make_origin(parsed, tls);
  url = text;
  base_path = parsed.target == "/" ? std::string() : parsed.target;
}

fleet::SetMember Worker::as_member(base::Duration now) const {
  return {.state = is_convicted() ? fleet::HealthState::kConvicted : health.state(),
          .weight = is_convicted() ? 0 : std::min(health.weight(now), verdict.weight),
          .failed_probations = health.failed_probations()};
}

bool Worker::serves(const std::string& model_name) const {
  return model_name == model || other_models.contains(model_name);
}

std::uint64_t Worker::slots_now(double concurrency_factor) const {
  const auto reduced =
      static_cast<std::uint64_t>(std::floor(static_cast<double>(slots) * concurrency_factor));
  return share.limit(std::max<std::uint64_t>(reduced, 1));
}

}  // namespace fo::route
