// A judge that refuses every target with the word "no".
#pragma once

#include <string_view>

#include "engine/publish/http_framing.h"

namespace fo::engine {

inline const HttpFraming::Judge kJudge = [](std::string_view target) {
  return target.find("no") == std::string_view::npos ? 0 : 403;
};

}  // namespace fo::engine
