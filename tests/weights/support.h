// For the tests of this library: valid and invalid safetensors files made from parts, and a folder
// for them.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "os/file/file.h"
#include "support/failure.h"
#include "support/temp_dir.h"

namespace fo::weights {

using test::Failure;
using test::failure_of;
using test::status_of;

struct TempDir : test::TempDir {
  /// Returns the file's path.
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
};

inline constexpr const char* kIndex = "model.safetensors.index.json";

/// Drops the file from the page cache, if the file system supports that.
inline void forget(const std::string& path) {
  const base::UniqueFd file = os::open_file(path, O_RDONLY);
  ::fsync(file.get());
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

/// Length, header, data: a file with any text as its header.
inline std::string make_file(const std::string& header, std::string_view data = "") {
  std::string file;
  file.reserve(8 + header.size() + data.size());
  for (unsigned i = 0; i < 8; ++i) {
    file += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i) & 0xff);
  }
  file += header;
  file += data;
  return file;
}

/// One tensor with bytes that depend on `seed`.
struct Part {
  std::string name;
  std::string dtype;
  std::string shape;  // as JSON
  std::string bytes;
};

inline Part make_part(std::string name, std::string dtype, std::string shape, std::size_t size,
                      std::uint64_t seed) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; i += sizeof seed) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(&bytes[i], &seed, std::min(sizeof seed, size - i));
  }
  return {std::move(name), std::move(dtype), std::move(shape), std::move(bytes)};
}

/// A valid file.
inline std::string make_safetensors(const std::vector<Part>& parts) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::string data;
  std::size_t size = 0;
  for (const Part& part : parts) size += part.bytes.size();
  data.reserve(size);
  for (const Part& part : parts) {
    header += ",\"" + part.name + R"(":{"dtype":")" + part.dtype + R"(","shape":)" + part.shape +
              R"(,"data_offsets":[)" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + part.bytes.size()) + "]}";
    data += part.bytes;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  return make_file(header, data);
}

}  // namespace fo::weights
