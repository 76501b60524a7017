// Small files of a test, whole.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace fo::test {

inline std::string slurp(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void spill(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

}  // namespace fo::test
