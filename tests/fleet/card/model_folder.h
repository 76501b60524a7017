// A small model in a Hugging Face folder.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "support/await.h"
#include "support/fds.h"
#include "support/temp_dir.h"
#include "support/text_file.h"

namespace fo::fleet {

/// A .safetensors file of one tensor with these bytes.
inline std::string safetensors(const std::string& bytes) {
  const std::string size = std::to_string(bytes.size());
  const std::string header =
      R"({"t":{"dtype":"U8","shape":[)" + size + R"(],"data_offsets":[0,)" + size + "]}}";
  std::string prefix(8, '\0');
  prefix[0] = static_cast<char>(header.size());
  return prefix + header + bytes;
}

/// Waits until a change of the file would get another time, so that its digest may be kept.
inline void settle(const std::string& path) {
  test::await([&] {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    const auto changed = std::chrono::seconds(status.st_ctim.tv_sec) +
                         std::chrono::nanoseconds(status.st_ctim.tv_nsec);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return now - changed > std::chrono::milliseconds(50);
  });
}

class ModelFolder : public test::FdCounting {
 protected:
  ModelFolder() { std::filesystem::create_directory(folder()); }

  [[nodiscard]] std::string folder() const { return dir_.path("model"); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder() + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    test::spill(path(name), text);
  }

  test::TempDir dir_;
};

}  // namespace fo::fleet
