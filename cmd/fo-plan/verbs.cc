#include "verbs.h"

#include "plan/digits.h"

namespace fo::fo_plan {

std::string rounded(double value) {
  std::string text = plan::to_digits(value, 4);
  if (text.find('.') == std::string::npos || text.find('e') != std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> kAll{mtbf(), spares(), capacity(), degrade(), migrate(), canary()};
  return kAll;
}

}  // namespace fo::fo_plan
