#include "fleet/verdict.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "fleet/registry/key.h"
#include "json/object.h"

namespace fo::fleet {
namespace {

using fo::json::Misfit;
using fo::json::needed_text;
using text::WallTime;

constexpr int kVerdictVersion = 1;
constexpr std::string_view kVerdictKeys = "verdicts/";
// Weight of a worker that too few writers have convicted.
constexpr double kDoubtedWeight = HealthRules{}.suspicious_weight;

std::string writer_of(const std::string& key) { return key.substr(key.rfind('/') + 1); }

HealthState needed_health(const nlohmann::json& object) {
  const std::string text = needed_text(object, "health");
  const std::optional<HealthState> health = parse_health_state(text);
  if (!health) throw Misfit("health " + base::quoted(text) + ": unknown");
  return *health;
}

double needed_weight(const nlohmann::json& object) {
  const nlohmann::json* const weight = fo::json::find(object, "weight");
  if (weight == nullptr) throw Misfit("missing weight");
  const double number = weight->is_number() ? weight->get<double>() : -1;
  if (!(number >= 0 && number <= 1)) throw Misfit("weight is not a number from 0 to 1");
  return number;
}

// nullopt for null. A missing member is an error.
std::optional<WallTime> expiry_in(const nlohmann::json& object) {
  if (!object.contains("expires")) throw Misfit("missing expires");
  if (object.at("expires").is_null()) return std::nullopt;
  return needed_time(object, "expires");
}

}  // namespace

WallTime needed_time(const nlohmann::json& object, const char* name) {
  const std::string text = needed_text(object, name);
  const std::optional<WallTime> time = text::parse_time(text);
  if (!time) throw Misfit(std::string(name) + " is " + base::quoted(text));
  return *time;
}

std::optional<Evidence> evidence_in(const nlohmann::json& object) {
  if (fo::json::find(object, "evidence") == nullptr) return std::nullopt;
  const nlohmann::json& evidence = fo::json::object_in(object, "evidence");
  return Evidence{.canary = needed_text(evidence, "canary"),
                  .position = fo::json::number_in(evidence, "position").value_or(0),
                  .expected = fo::json::text_in(evidence, "expected"),
                  .got = fo::json::text_in(evidence, "got")};
}

bool is_verdict_key(std::string_view key) { return is_key(key) && key.starts_with(kVerdictKeys); }

std::string verdict_key(const std::string& worker_id, std::string_view writer) {
  return std::string(kVerdictKeys) + worker_id + "/" + key_segment(writer);
}

nlohmann::json to_json(const Evidence& evidence) {
  return {{"canary", evidence.canary},
          {"position", evidence.position},
          {"expected", evidence.expected},
          {"got", evidence.got}};
}

std::string encode(const Verdict& verdict) {
  nlohmann::json object = {{"version", kVerdictVersion},
                           {"id", verdict.id},
                           {"health", to_string(verdict.health)},
                           {"weight", verdict.weight},
                           {"reason", verdict.reason},
                           {"evidence", nullptr},
                           {"since", text::format_time(verdict.since)},
                           {"expires", nullptr}};
  if (verdict.evidence) object["evidence"] = to_json(*verdict.evidence);
  if (verdict.expires) object["expires"] = text::format_time(*verdict.expires);
  return fo::json::dump(object);
}

Verdict decode_verdict(const Record& record) {
  const auto read = [&](const nlohmann::json& object) {
    if (!is_verdict_key(record.key)) throw Misfit("not the key of a verdict");
    static_cast<void>(checked_life(record));
    Verdict verdict;
    verdict.id = needed_text(object, "id");
    verdict.health = needed_health(object);
    verdict.weight = needed_weight(object);
    verdict.reason = fo::json::text_in(object, "reason");
    verdict.evidence = evidence_in(object);
    verdict.since = needed_time(object, "since");
    verdict.expires = expiry_in(object);
    if (verdict.is_conviction() && (verdict.expires || verdict.weight > 0)) {
      throw Misfit("a conviction has weight 0 and does not expire");
    }
    if (!verdict.is_conviction() && !verdict.expires) {
      throw Misfit("only a conviction does not expire");
    }
    return verdict;
  };
  const auto what = [&] { return "record " + base::quoted(record.key); };
  return fo::json::read_object(record.text, kMaxRecordBytes, what, read,
                               base::ExitStatus::kBadData);
}

std::string_view to_string(const JointVerdict& verdict) {
  return verdict.health ? to_string(*verdict.health) : "unknown";
}

const Verdict& Verdicts::put(const Record& record) {
  Verdict verdict = decode_verdict(record);
  const std::string writer = writer_of(record.key);
  remove(record.key);
  if (verdict.expires) expiries_[writer].insert(*verdict.expires);
  std::map<std::string, Verdict>& on_worker = by_worker_[verdict.id];
  return on_worker.insert_or_assign(writer, std::move(verdict)).first->second;
}

void Verdicts::remove(const std::string& key) {
  const auto worker = by_worker_.find(std::string(id_of(key)));
  if (worker == by_worker_.end()) return;
  const auto found = worker->second.find(writer_of(key));
  if (found == worker->second.end()) return;
  if (const auto& expires = found->second.expires) {
    const auto of_writer = expiries_.find(found->first);
    of_writer->second.erase(of_writer->second.find(*expires));
    if (of_writer->second.empty()) expiries_.erase(of_writer);
  }
  worker->second.erase(found);
  if (worker->second.empty()) by_worker_.erase(worker);
}

std::size_t Verdicts::count_others(const std::map<std::string, Verdict>& on_worker,
                                   WallTime now) const {
  return static_cast<std::size_t>(
      std::count_if(expiries_.begin(), expiries_.end(), [&](const auto& entry) {
        const auto found = on_worker.find(entry.first);
        const bool convicts = found != on_worker.end() && found->second.is_conviction();
        return !convicts && now < *entry.second.rbegin();
      }));
}

JointVerdict Verdicts::on(const std::string& worker_id, WallTime now) const {
  JointVerdict joint;
  const auto found = by_worker_.find(worker_id);
  if (found == by_worker_.end()) return joint;
  const auto convictions = static_cast<std::size_t>(
      std::count_if(found->second.begin(), found->second.end(),
                    [](const auto& entry) { return entry.second.is_conviction(); }));
  const bool is_convicted = convictions > 0 && convictions >= count_others(found->second, now);
  for (const auto& [writer, verdict] : found->second) {
    if (!verdict.counts(now) || (is_convicted && !verdict.is_conviction())) continue;
    const bool is_doubted = verdict.is_conviction() && !is_convicted;
    const double weight = is_doubted ? kDoubtedWeight : verdict.weight;
    if (joint.health && weight >= joint.weight) continue;
    joint = {.health = is_doubted ? HealthState::kSuspicious : verdict.health,
             .weight = weight,
             .reason = verdict.reason};
  }
  return joint;
}

}  // namespace fo::fleet
