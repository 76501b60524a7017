#include "weights/model.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "os/file.h"
#include "weights/model_index.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using base::Error;
using base::ExitStatus;
using base::throw_errno;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

struct stat status_of(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw_errno(errno, "look at " + base::quoted(path));
  return status;
}

bool exists(const std::string& path) {
  std::error_code error;
  const bool found = std::filesystem::exists(path, error);
  if (error) throw_errno(error.value(), "look at " + base::quoted(path));
  return found;
}

std::vector<Tensor> read_header(const ModelFile& file) {
  std::string bytes(std::min(kPrefixSize, file.size()), '\0');
  file.read(std::as_writable_bytes(std::span(bytes)), 0);
  bytes.resize(header_end(bytes, file.size(), file.path()));
  file.read(std::as_writable_bytes(std::span(bytes)), 0);
  return parse_header(bytes, file.size(), file.path());
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

Model open_folder(const std::string& folder) {
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
                                            base::quoted(tensor) + ": it is not in " +
                                            base::quoted(name));
    }
  }
  return model;
}

}  // namespace

// Not to be stuck at a FIFO: opened without blocking, then looked at.
ModelFile::ModelFile(std::string path)
    : path_(std::move(path)), fd_(os::open_file(path_, O_RDONLY | O_NONBLOCK)) {
  const struct stat status = status_of(fd_.get(), path_);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ExitStatus::kBadData, "read " + base::quoted(path_) + ": not a regular file");
  }
  size_ = static_cast<ByteCount>(status.st_size);
  modified_ = status.st_mtim;
}

void ModelFile::read(std::span<std::byte> to, ByteCount offset) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(fd_.get(), to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(errno, ExitStatus::kIoError, "read " + base::quoted(path_));
    if (got == 0) {
      throw Error(ExitStatus::kBadData, "read " + base::quoted(path_) +
                                            ": it is cut off, nothing at byte " +
                                            std::to_string(offset));
    }
    to = to.subspan(static_cast<std::size_t>(got));
    offset += static_cast<ByteCount>(got);
  }
}

void ModelFile::check_unchanged() const {
  const struct stat status = status_of(fd_.get(), path_);
  if (static_cast<ByteCount>(status.st_size) != size_ ||
      status.st_mtim.tv_sec != modified_.tv_sec || status.st_mtim.tv_nsec != modified_.tv_nsec) {
    throw Error(ExitStatus::kBadData,
                "read " + base::quoted(path_) + ": it was written to meanwhile");
  }
}

Model open_model(const std::string& path) {
  std::error_code ignored;
  Model model;
  if (std::filesystem::is_directory(path, ignored)) {
    model = open_folder(path);
  } else {
    add_file(model, path);
  }
  if (model.tensors.empty()) {
    throw Error(ExitStatus::kBadData, "read " + base::quoted(path) + ": no tensors in it");
  }
  return model;
}

}  // namespace fo::weights
