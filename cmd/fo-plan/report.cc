#include "report.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace fo::fo_plan {
namespace {

using Json = nlohmann::ordered_json;

// A whole number is written without a fraction.
Json number(double value) {
  constexpr double kMaxWhole = 9e15;
  if (std::abs(value) < kMaxWhole && value == std::floor(value)) {
    return static_cast<std::int64_t>(value);
  }
  return value;
}

Json number(const std::optional<double>& value) { return value ? number(*value) : Json(); }

Json head(const Verb& verb) {
  return Json{{"version", 1}, {"verb", verb.name}, {"formula", verb.formula}};
}

Json inputs_of(const Verb& verb, const Inputs& inputs) {
  Json object = Json::object();
  for (const Parameter& parameter : verb.parameters) {
    const auto text = inputs.texts().find(parameter.name);
    if (text == inputs.texts().end()) continue;
    const bool is_number = parameter.kind == Kind::kNumber || parameter.kind == Kind::kCount;
    object[parameter.name] = is_number ? number(inputs.number(parameter.name)) : Json(text->second);
  }
  return object;
}

void add_results(Json& object, const Answer& answer) {
  for (const Result& result : answer.results) object[result.name] = number(result.value);
}

Json met(const Answer& answer) { return answer.is_met ? Json(*answer.is_met) : Json(); }

}  // namespace

std::string to_json(const Verb& verb, const Inputs& inputs, const Answer& answer) {
  Json object = head(verb);
  object["inputs"] = inputs_of(verb, inputs);
  object["results"] = Json::object();
  add_results(object["results"], answer);
  object["met"] = met(answer);
  return object.dump();
}

std::string to_json(const Verb& verb, const Inputs& inputs, const Sweep& sweep,
                    const std::vector<Row>& rows) {
  Json object = head(verb);
  object["inputs"] = inputs_of(verb, inputs);
  object["rows"] = Json::array();
  for (const Row& row : rows) {
    Json line{{column_name(sweep.parameter), number(row.value)}};
    add_results(line, row.answer);
    line["met"] = met(row.answer);
    object["rows"].push_back(std::move(line));
  }
  return object.dump();
}

std::string to_json(const std::vector<plan::Figure>& figures) {
  Json object{{"version", 1}, {"verb", "figures"}, {"figures", Json::array()}};
  for (const plan::Figure& figure : figures) {
    object["figures"].push_back(Json{{"claim", figure.claim},
                                     {"right", figure.is_right},
                                     {"value", figure.value},
                                     {"reason", figure.reason}});
  }
  return object.dump();
}

}  // namespace fo::fo_plan
