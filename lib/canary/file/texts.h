// The built-in prompts that fo-canary learn draws from: 64 texts in several languages, code and
// digits, some of them over 1,024 tokens long. Pure.
#pragma once

#include <string>
#include <vector>

namespace fo::canary {

struct PromptText {
  std::string name;
  std::string text;
};

std::vector<PromptText> builtin_prompts();

}  // namespace fo::canary
