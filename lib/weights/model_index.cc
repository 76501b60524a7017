#include "weights/model_index.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace fo::weights {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& file, const std::string& reason) {
  throw base::Error(base::ExitStatus::kBadData, "read " + base::quoted(file) + ": " + reason);
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

// Passes over everything but {"weight_map": {"tensor": "file", ..}}.
class IndexReader : public nlohmann::json_sax<json> {
 public:
  explicit IndexReader(const std::string& file) : file_(file) {}

  std::map<std::string, std::string> take() {
    if (!seen_) fail(file_, "no weight_map");
    return std::move(files_);
  }

  bool start_object(std::size_t) override {
    if (depth_ == 1 && in_map_) {
      seen_ = true;
    } else {
      value("an object");
    }
    ++depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    value("a list");
    ++depth_;
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }

  bool key(std::string& name) override {
    if (depth_ == 1) {
      in_map_ = name == "weight_map";
      if (in_map_ && seen_) fail(file_, "weight_map is there twice");
    } else if (depth_ == 2 && in_map_) {
      tensor_ = name;
    }
    return true;
  }

  bool string(std::string& name) override {
    if (depth_ != 2 || !in_map_) return value("text");
    if (!is_plain_name(name)) {
      fail(file_, "tensor " + base::quoted(tensor_) + ": its file " + base::quoted(name) +
                      " is not a plain name");
    }
    if (!files_.emplace(tensor_, name).second) {
      fail(file_, "tensor " + base::quoted(tensor_) + ": it is there twice");
    }
    return true;
  }

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const std::string&) override { return value("a number"); }
  bool binary(binary_t&) override { return value("binary data"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fail(file_, "not JSON at byte " + std::to_string(position));
  }

 private:
  bool value(const std::string& what) const {
    if (depth_ == 1 && in_map_) fail(file_, "weight_map is " + what);
    if (depth_ >= 2 && in_map_) {
      fail(file_, "tensor " + base::quoted(tensor_) + ": its file is " + what);
    }
    return true;
  }

  const std::string& file_;
  std::size_t depth_ = 0;
  bool in_map_ = false;
  bool seen_ = false;
  std::string tensor_;
  std::map<std::string, std::string> files_;
};

}  // namespace

std::map<std::string, std::string> parse_model_index(std::string_view text,
                                                     const std::string& file) {
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    fail(file, "not JSON at byte " + std::to_string(nul + 1));
  }
  IndexReader reader(file);
  json::sax_parse(text, &reader);
  return reader.take();
}

}  // namespace fo::weights
