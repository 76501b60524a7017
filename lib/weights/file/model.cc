#include "weights/file/model.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "os/file/file.h"
#include "weights/file/model_index.h"

namespace fo::weights {
namespace {
using base::Error;
using base::ExitStatus;
using base::throw_errno;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

bool exists(const std::string& path) {
  std::error_code error;
  const bool found = std::filesystem::exists(path, error);
  if (error) throw_errno(error.value(), "stat " + base::quoted(path));
  return found;
}

void add_file(Model& model, std::string path) {
  model.files.emplace_back(std::move(path));
  for (Tensor& tensor : read_header(model.files.back())) {
    model.bytes += tensor.size;
    model.tensors.push_back({std::move(tensor), model.files.size() - 1});
  }
}

using FileOfTensor = std::unordered_map<std::string_view, std::size_t>;

FileOfTensor check_names(const Model& model) {
  FileOfTensor file_of;
  for (const ModelTensor& one : model.tensors) {
    const auto [found, added] = file_of.emplace(one.tensor.name, one.file);
    if (!added) {
      throw Error(ExitStatus::kBadData, "read " + base::quoted(model.files[one.file].path()) +
                                            ": tensor " + base::quoted(one.tensor.name) +
                                            ": it is also in " +
                                            base::quoted(model.files[found->second].path()));
    }
  }
  return file_of;
}

Model open_model_folder(const std::string& folder) {
  Model model;
  const std::string index_path = folder + "/" + kIndexFile;
  if (!exists(index_path)) {
    const std::string path = folder + "/" + kSingleFile;
    if (!exists(path)) {
      throw Error(ExitStatus::kNoInput, "open model " + base::quoted(folder) + ": no " +
                                            std::string(kIndexFile) + " or " + kSingleFile +
                                            " in it");
    }
    add_file(model, path);
    return model;
  }
  const auto index = parse_model_index(os::read_file(index_path, kMaxIndex), index_path);
  std::map<std::string_view, std::size_t> number_of;
  for (const auto& [tensor, name] : index) number_of.emplace(name, 0);
  for (auto& [name, number] : number_of) {
    number = model.files.size();
    add_file(model, folder + "/" + std::string(name));
  }
  const FileOfTensor file_of = check_names(model);
  for (const auto& [tensor, name] : index) {
    const auto found = file_of.find(tensor);
    if (found == file_of.end() || found->second != number_of.at(name)) {
      throw Error(ExitStatus::kBadData, "read " + base::quoted(index_path) + ": tensor " +
                                            base::quoted(tensor) + ": it is missing in " +
                                            base::quoted(name));
    }
  }
  return model;
}

}  // namespace

std::vector<Tensor> read_header(const WeightFile& file) {
  std::string bytes(std::min(kPrefixSize, file.size()), '\0');
  file.read(std::as_writable_bytes(std::span(bytes)), 0);
  bytes.resize(header_end(bytes, file.size(), file.path()));
  file.read(std::as_writable_bytes(std::span(bytes)), 0);
  return parse_header(bytes, file.size(), file.path());
}

Model open_model(const std::string& path) {
  std::error_code ignored;
  Model model;
  if (std::filesystem::is_directory(path, ignored)) {
    model = open_model_folder(path);
  } else {
    add_file(model, path);
  }
  if (model.tensors.empty()) {
    throw Error(ExitStatus::kBadData, "read " + base::quoted(path) + ": it has no tensors");
  }
  return model;
}

}  // namespace fo::weights
