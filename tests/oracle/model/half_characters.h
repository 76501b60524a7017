// Splits characters beyond U+FFFF between two events of a stream: one ends with "\ud83d" in its
// JSON, the next one begins with "\ude42". Pure.
#pragma once

#include <string>

#include "oracle/answer.h"

namespace fo::oracle {

class HalfCharacters {
 public:
  /// Call for each part of a choice, in order: replaces half characters by marks.
  void split(ChoicePart& part);
  /// Replaces the marks in the event of that part by escapes.
  [[nodiscard]] std::string escape(std::string event) const;

 private:
  /// The halves that this part begins and ends with; 0 for none.
  char32_t low_ = 0;
  char32_t high_ = 0;
  char32_t next_low_ = 0;
};

}  // namespace fo::oracle
