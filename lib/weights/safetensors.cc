#include "weights/safetensors.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "gms/tensor_metadata.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";

[[noreturn]] void fail(const std::string& file, const std::string& reason) {
  throw base::Error(base::ExitStatus::kBadData, "read " + base::quoted(file) + ": " + reason);
}

// Takes exactly {"name": {"dtype": "..", "shape": [..], "data_offsets": [.., ..]}, ..} and
// {"__metadata__": {"key": "text"}}, and nothing that is nested deeper.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  std::vector<Tensor> take() { return std::move(tensors_); }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kHeader;
    } else if (place_ == Place::kHeader) {
      place_ = tensor_.name == kMetadataKey ? Place::kMetadata : Place::kTensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(std::string& name) override {
    if (place_ == Place::kHeader) {
      start_tensor(name);
    } else if (place_ == Place::kTensor) {
      start_field(name);
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      if (fields_ != kAllFields) fail_tensor("no dtype, shape or data_offsets");
      finish_tensor();
    }
    place_ = place_ == Place::kHeader ? Place::kEnd : Place::kHeader;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || field_ == kDType) unexpected("a list");
    place_ = Place::kList;
    return true;
  }

  bool end_array() override {
    if (field_ == kOffsets && offsets_.size() != 2) fail_tensor("data_offsets are not two numbers");
    place_ = Place::kTensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kList) unexpected("a number");
    std::vector<ByteCount>& list = field_ == kShape ? tensor_.shape : offsets_;
    if (list.size() >= (field_ == kShape ? gms::kMaxTensorRank : 2))
      fail_tensor("too many numbers in a list");
    list.push_back(value);
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || field_ != kDType) unexpected("text");
    tensor_.dtype = find_dtype(value);
    if (tensor_.dtype == nullptr) fail_tensor("unknown dtype " + base::quoted(value));
    return true;
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const std::string&) override {
    return unexpected("a number that is not a non-negative integer");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fail(file_, "the header is not JSON at byte " + std::to_string(position));
  }

 private:
  enum class Place { kStart, kHeader, kMetadata, kTensor, kList, kEnd };
  enum Field : unsigned { kDType = 1, kShape = 2, kOffsets = 4, kAllFields = 7 };

  [[noreturn]] void fail_tensor(const std::string& reason) const {
    fail(file_, "tensor " + base::quoted(tensor_.name) + ": " + reason);
  }

  [[noreturn]] bool unexpected(const std::string& what) const {
    if (place_ == Place::kStart) fail(file_, "the header is not a JSON object");
    fail_tensor(what + " where none belongs");
  }

  void start_tensor(const std::string& name) {
    tensor_ = Tensor{};
    tensor_.name = name;
    offsets_.clear();
    fields_ = 0;
    if (name.size() > kMaxTensorName) fail_tensor("the name is too long");
    if (name.empty()) fail_tensor("the name is empty");
    if (!names_.insert(name).second) fail_tensor("it is there twice");
  }

  void start_field(std::string_view name) {
    if (name == "dtype") {
      field_ = kDType;
    } else if (name == "shape") {
      field_ = kShape;
    } else if (name == "data_offsets") {
      field_ = kOffsets;
    } else {
      fail_tensor("unknown key " + base::quoted(name));
    }
    if ((fields_ & field_) != 0) fail_tensor("key " + base::quoted(name) + " is there twice");
    fields_ |= field_;
  }

  // Offsets count from the header's end until parse_header knows better.
  void finish_tensor() {
    if (offsets_[1] < offsets_[0]) fail_tensor("data_offsets run backwards");
    tensor_.offset = offsets_[0];
    tensor_.size = offsets_[1] - offsets_[0];
    // Extents of 0 count as 1 on the way, so that strides can't overflow either.
    ByteCount bytes = tensor_.dtype->size;
    bool is_empty = false;
    for (const ByteCount extent : tensor_.shape) {
      is_empty = is_empty || extent == 0;
      constexpr ByteCount kMost = std::numeric_limits<std::int64_t>::max();
      if (extent > kMost / bytes) fail_tensor("its shape is too large");
      bytes *= std::max<ByteCount>(extent, 1);
    }
    if (is_empty) bytes = 0;
    if (tensor_.size != bytes) {
      fail_tensor("data_offsets span " + std::to_string(tensor_.size) +
                  " bytes, dtype and shape need " + std::to_string(bytes));
    }
    tensors_.push_back(std::move(tensor_));
  }

  const std::string& file_;
  Place place_ = Place::kStart;
  Tensor tensor_;
  std::vector<ByteCount> offsets_;
  Field field_ = kDType;
  unsigned fields_ = 0;
  std::unordered_set<std::string> names_;
  std::vector<Tensor> tensors_;
};

}  // namespace

ByteCount header_end(std::string_view prefix, ByteCount file_size, const std::string& file) {
  if (prefix.size() < kPrefixSize || file_size < kPrefixSize) {
    fail(file, "too short for a safetensors file");
  }
  ByteCount length = 0;
  for (std::size_t i = kPrefixSize; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(prefix[i]);
  }
  if (length > kMaxHeader) {
    fail(file, "a header of " + std::to_string(length) + " bytes: not a safetensors file");
  }
  if (length > file_size - kPrefixSize) fail(file, "the file ends within its header");
  return kPrefixSize + length;
}

std::vector<Tensor> parse_header(std::string_view bytes, ByteCount file_size,
                                 const std::string& file) {
  const ByteCount data = header_end(bytes, file_size, file);
  if (bytes.size() < data) fail(file, "the file ends within its header");
  const std::string_view header = bytes.substr(kPrefixSize, data - kPrefixSize);
  if (!header.starts_with('{')) fail(file, "the header is not a JSON object");
  // To nlohmann::json a NUL is the end of the text.
  if (const auto nul = header.find('\0'); nul != std::string_view::npos) {
    fail(file, "the header is not JSON at byte " + std::to_string(nul + 1));
  }
  HeaderReader reader(file);
  json::sax_parse(header, &reader);

  std::vector<Tensor> tensors = reader.take();
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& one, const Tensor& other) {
    return std::tie(one.offset, one.size, one.name) <
           std::tie(other.offset, other.size, other.name);
  });
  ByteCount end = 0;
  for (Tensor& tensor : tensors) {
    const std::string who = "tensor " + base::quoted(tensor.name) + ": ";
    if (tensor.offset < end) fail(file, who + "its bytes overlap those of another");
    if (tensor.offset > end) fail(file, who + "a gap before its bytes");
    if (tensor.size > file_size - data - end) fail(file, who + "its bytes go past the file's end");
    end += tensor.size;
    tensor.offset += data;
  }
  if (data + end != file_size) {
    fail(file, std::to_string(file_size - data - end) + " bytes after the last tensor");
  }
  return tensors;
}

}  // namespace fo::weights
