#include "refengine/model/make_model.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "os/file/file.h"
#include "os/file/file_lock.h"
#include "refengine/model/splitmix.h"

namespace fo::refengine {
namespace {

using base::Error;
using base::ExitStatus;
namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = base::kMiB;
constexpr std::uint32_t kTextFirst = 32;
constexpr std::uint32_t kTextLast = 126;

struct PlannedTensor {
  TensorSpec spec;
  std::uint64_t index;  // in the model; the tensor's values depend on it
  std::uint64_t elements;
};
using Shard = std::vector<PlannedTensor>;

ModelConfig config_of(const MakeModelOptions& options) {
  ModelConfig config;
  config.hidden_size = options.hidden;
  config.intermediate_size =
      options.intermediate != 0 ? options.intermediate : (options.hidden / 3 * 8 + 31) / 32 * 32;
  config.layers = options.layers;
  config.heads = options.heads;
  config.kv_heads = options.kv_heads;
  config.head_dim = options.heads == 0 ? 0 : options.hidden / options.heads;
  config.vocab_size = options.vocab;
  config.max_positions = options.max_positions;
  config.rms_norm_eps = 1e-5;
  config.dtype = options.dtype;
  if (options.vocab > 257) {
    config.bos = 256;
    config.eos = {257};
  }
  try {
    check_model_config(config, "made");
  } catch (const Error& error) {
    throw Error(ExitStatus::kUsage, error.what());
  }
  if (config.heads * config.head_dim != options.hidden) {
    throw Error(ExitStatus::kUsage, "make a model: hidden is not a multiple of heads");
  }
  return config;
}

std::vector<Shard> plan(const ModelConfig& config, base::ByteCount shard_size) {
  std::vector<Shard> shards(1);
  base::ByteCount filled = 0;
  std::uint64_t index = 0;
  for (TensorSpec& spec : model_tensors(config)) {
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : spec.shape) elements *= extent;
    const base::ByteCount bytes = elements * dtype_size(config.dtype);
    if (filled != 0 && filled + bytes > shard_size) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    shards.back().push_back({std::move(spec), index++, elements});
  }
  return shards;
}

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

// The spread of a tensor's values: around `middle`, uniformly, `width` to either side.
struct Spread {
  float middle;
  float width;
};

// Every projection keeps unit variance, except that attention is sharper (q, k) and stronger (v, o)
// against the residual, so that the next token depends on more than the last one.
Spread spread_of(const TensorSpec& spec) {
  const auto is = [&](std::string_view part) { return spec.name.find(part) != std::string::npos; };
  if (spec.shape.size() == 1) return {1.0f, 0.1f};
  const double unit = std::numbers::sqrt3;
  const double fan_in = std::sqrt(static_cast<double>(spec.shape[1]));
  if (is("embed_tokens")) return {0.0f, static_cast<float>(unit)};
  double gain = 1.0;
  if (is("q_proj") || is("k_proj")) gain = 1.6;
  if (is("v_proj") || is("o_proj")) gain = 1.6;
  return {0.0f, static_cast<float>(gain * unit / fan_in)};
}

class Values {
 public:
  Values(const PlannedTensor& tensor, std::uint64_t seed)
      : key_(splitmix(splitmix(seed) + tensor.index)),
        spread_(spread_of(tensor.spec)),
        columns_(tensor.spec.shape.back()),
        is_head_(tensor.spec.name == "lm_head.weight") {}

  [[nodiscard]] float at(std::uint64_t element) const {
    const std::uint64_t bits = splitmix(key_ + element / 2);
    const auto half = static_cast<std::uint32_t>(element % 2 == 0 ? bits : bits >> 32);
    const float uniform = (static_cast<float>(half >> 8) - 0x1p23f) * 0x1p-23f;  // [-1, 1)
    float value = spread_.middle + spread_.width * uniform;
    // Tokens that are not printable get smaller logits, so that people can read most of the output.
    if (is_head_) {
      const std::uint64_t token = element / columns_;
      if (token < kTextFirst || token > kTextLast) value *= 0.25f;
    }
    return value;
  }

 private:
  std::uint64_t key_;
  Spread spread_;
  std::uint64_t columns_;
  bool is_head_;
};

void encode(const Values& values, DType dtype, std::uint64_t first, std::size_t count, char* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const float value = values.at(first + i);
    if (dtype == DType::kF32) {
      std::memcpy(out + i * sizeof value, &value, sizeof value);
    } else {
      const std::uint16_t half = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
      std::memcpy(out + i * sizeof half, &half, sizeof half);
    }
  }
}

std::string header_of(const Shard& shard, DType dtype) {
  nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t at = 0;
  for (const PlannedTensor& tensor : shard) {
    const std::uint64_t end = at + tensor.elements * dtype_size(dtype);
    header[tensor.spec.name] = {{"dtype", safetensors_dtype_name(dtype)},
                                {"shape", tensor.spec.shape},
                                {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize(base::round_up(text.size(), 8), ' ');
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

void write_shard(const std::string& path, const Shard& shard, const MakeModelOptions& options) {
  const std::string what = "write " + base::quoted(path);
  const base::UniqueFd fd = os::open_file(path, O_WRONLY | O_CREAT | O_EXCL);
  os::write_all(fd.get(), header_of(shard, options.dtype), what);
  std::vector<char> buffer(kBufferBytes);
  const std::size_t element = dtype_size(options.dtype);
  for (const PlannedTensor& tensor : shard) {
    const Values values(tensor, options.seed);
    for (std::uint64_t at = 0; at < tensor.elements;) {
      const std::size_t count =
          std::min<std::uint64_t>(buffer.size() / element, tensor.elements - at);
      encode(values, options.dtype, at, count, buffer.data());
      os::write_all(fd.get(), {buffer.data(), count * element}, what);
      at += count;
    }
  }
}

// The folder in which everything is written before it gets its final name. A running process holds
// its lock; the folder that a killed process left is not locked.
class PartialFolder {
 public:
  explicit PartialFolder(const std::string& dir) : path_(dir + ".partial") {
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) refuse(path_, error);
    lock_ = os::open_file(path_, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!os::try_lock_entry(AT_FDCWD, path_.c_str(), lock_.get())) {
      throw Error(ExitStatus::kTryAgain,
                  "create folder " + base::quoted(path_) + ": another process is writing it");
    }
    for (fs::directory_iterator entry(path_, error), end; !error && entry != end;) {
      fs::remove_all(entry->path(), error);
      if (!error) entry.increment(error);
    }
    if (error) refuse(path_, error);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder() {
    std::error_code ignored;
    if (lock_) fs::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Renames the folder to `dir`. rename(2) replaces only an empty folder.
  void publish(const std::string& dir) {
    std::error_code error;
    fs::rename(path_, dir, error);
    if (error) refuse(dir, error);
    lock_.reset();
  }

 private:
  [[noreturn]] static void refuse(const std::string& path, std::error_code error) {
    throw Error(ExitStatus::kCannotCreate, "create folder " + base::quoted(path), error);
  }

  std::string path_;
  base::UniqueFd lock_;
};

void refuse_occupied(const std::string& dir) {
  std::error_code error;
  const auto status = fs::status(dir, error);
  if (status.type() == fs::file_type::not_found) return;
  const bool empty = fs::is_directory(status) && fs::is_empty(dir, error);
  if (!empty || error) {
    throw Error(ExitStatus::kCannotCreate,
                "create folder " + base::quoted(dir) + ": exists and is not an empty folder");
  }
}

}  // namespace

MadeModel make_model(const std::string& dir, const MakeModelOptions& options) {
  if (options.shard_size == 0) throw Error(ExitStatus::kUsage, "make a model: shard size is 0");
  const ModelConfig config = config_of(options);
  std::string target = dir;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  refuse_occupied(target);
  const std::vector<Shard> shards = plan(config, options.shard_size);
  PartialFolder folder(target);
  MadeModel made;
  made.files = shards.size();
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    write_shard(folder.path() + "/" + name, shards[i], options);
    for (const PlannedTensor& tensor : shards[i]) {
      made.tensors += 1;
      made.bytes += tensor.elements * dtype_size(config.dtype);
      files[tensor.spec.name] = name;
    }
  }
  if (shards.size() > 1) {
    const nlohmann::ordered_json index{{"metadata", {{"total_size", made.bytes}}},
                                       {"weight_map", files}};
    os::write_file_atomic(folder.path() + "/model.safetensors.index.json", index.dump(2) + "\n");
  }
  os::write_file_atomic(folder.path() + "/config.json", format_model_config(config));
  folder.publish(target);
  return made;
}

}  // namespace fo::refengine
