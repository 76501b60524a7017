// The differences of two model cards, and the consequences for requests to their workers. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fleet/card/card.h"

namespace fo::fleet {

struct CardDifference {
  std::string_view field;
  bool in_checksum = false;
  /// The values of both cards, in canonical JSON; "" for an empty field.
  std::string a;
  std::string b;
};

struct CardComparison {
  /// Differences in the order of the fields.
  std::vector<CardDifference> differences;
  /// The cards have a name or an alias in common: workers of both may get requests for it.
  bool may_share_traffic = false;
  /// The checksums are equal: a request may move between the workers before it is finished.
  bool may_migrate = false;
  /// The checksums and the KV caches match: one worker may do the prefill for the other.
  bool may_pair = false;

  [[nodiscard]] bool may_all() const { return may_share_traffic && may_migrate && may_pair; }
};

CardComparison compare(const Card& a, const Card& b);

/// One line for each difference, and one for each conclusion with its reason.
std::string to_text(const CardComparison& comparison);
/// One JSON object on one line.
std::string to_json(const CardComparison& comparison);

}  // namespace fo::fleet
